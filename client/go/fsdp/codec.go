package fsdp

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// codec writes messages with google.golang.org/protobuf whatever the gRPC library has been built with: that of
// Debian 12 has the older protobuf library, which does not know the messages of today's generator.
type codec struct{}

func (codec) Marshal(v interface{}) ([]byte, error) {
	message, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("fsdp: %T is no message", v)
	}
	return proto.Marshal(message)
}

func (codec) Unmarshal(data []byte, v interface{}) error {
	message, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("fsdp: %T is no message", v)
	}
	return proto.Unmarshal(data, message)
}

func (codec) Name() string { return "proto" }
