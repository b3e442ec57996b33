package fsdp

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Violation is one bad field of a request: "spec.model.dim" and what is wrong with it.
type Violation struct {
	Field       string
	Description string
}

// Error is a failed call with the service's details. status.FromError takes it too.
type Error struct {
	Code    codes.Code
	Message string
	// Reason is UPPER_SNAKE_CASE, for programs; empty when no coordinator made the error.
	Reason     string
	Metadata   map[string]string
	Violations []Violation
	status     *status.Status
}

func (e *Error) Error() string {
	text := e.Message
	if e.Reason != "" {
		text = fmt.Sprintf("%s [%s]", text, e.Reason)
	}
	for _, violation := range e.Violations {
		// The message of a single bad field is that field's already.
		if !strings.Contains(e.Message, violation.Description) {
			text += fmt.Sprintf("\n  %s: %s", violation.Field, violation.Description)
		}
	}
	return text
}

// GRPCStatus is the status as it came.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// mayPass is true where the coordinator is away, perhaps to be back soon.
func (e *Error) mayPass() bool { return e.Code == codes.Unavailable && e.Reason != "STORE_FAILED" }

func toError(err error, server string) *Error {
	from := status.Convert(err)
	result := &Error{Code: from.Code(), Message: from.Message(), status: from}
	for _, detail := range from.Details() {
		switch known := detail.(type) {
		case *errdetails.ErrorInfo:
			result.Reason = known.Reason
			result.Metadata = known.Metadata
		case *errdetails.BadRequest:
			for _, violation := range known.FieldViolations {
				result.Violations = append(result.Violations, Violation{violation.Field, violation.Description})
			}
		}
	}
	if result.Reason != "" {
		return result
	}
	switch result.Code {
	// What a broken connection looks like.
	case codes.Internal, codes.Unknown, codes.Unavailable:
		result.Code = codes.Unavailable
		result.Message = fmt.Sprintf("no connection to the coordinator at %s (%s)", server, from.Message())
		result.status = status.New(result.Code, result.Message)
	}
	return result
}
