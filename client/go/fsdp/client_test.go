package fsdp

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	pb "fsdpctl/client/go/fsdpv1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// scripted is a coordinator whose streams break where a test says.
type scripted struct {
	pb.UnimplementedJobServiceServer
	pb.UnimplementedClusterServiceServer
	maintenance *pb.Maintenance
	mutex       sync.Mutex
	offsets     []int64
	tokens      []string
	tries       int
}

func (s *scripted) GetJob(ctx context.Context, request *pb.GetJobRequest) (*pb.GetJobResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if incoming, ok := metadata.FromIncomingContext(ctx); ok {
		s.tokens = append(s.tokens, incoming.Get("authorization")...)
	}
	if s.tries++; request.Name == "jobs/away" && s.tries < 3 {
		return nil, status.Error(codes.Unavailable, "starting")
	}
	if request.Name == "jobs/none" {
		failed, _ := status.New(codes.NotFound, "no job none").WithDetails(
			&errdetails.ErrorInfo{Reason: "JOB_NOT_FOUND", Metadata: map[string]string{"job": "none"}},
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "name", Description: "is of no job"}}})
		return nil, failed.Err()
	}
	return &pb.GetJobResponse{Job: &pb.Job{Name: request.Name, State: pb.JobState_JOB_STATE_SUCCEEDED, Revision: 9}}, nil
}

// Ten steps; the connection breaks after three and after six, and repeats one.
func (s *scripted) StreamMetrics(request *pb.StreamMetricsRequest, stream pb.JobService_StreamMetricsServer) error {
	s.mutex.Lock()
	s.offsets = append(s.offsets, request.AfterOffset)
	s.mutex.Unlock()
	for offset := request.AfterOffset; offset <= 10; offset++ {
		if offset == 0 {
			continue
		}
		if err := stream.Send(&pb.StreamMetricsResponse{Metrics: []*pb.StepMetrics{
			{Offset: offset, Step: offset}}}); err != nil {
			return err
		}
		if (offset == 3 || offset == 6) && offset != request.AfterOffset {
			return status.Error(codes.Unavailable, "draining")
		}
	}
	return nil
}

func (s *scripted) WatchJob(request *pb.WatchJobRequest, stream pb.JobService_WatchJobServer) error {
	if request.AfterRevision >= 2 {
		return nil
	}
	if err := stream.Send(&pb.WatchJobResponse{Job: &pb.Job{State: pb.JobState_JOB_STATE_RUNNING,
		Revision: request.AfterRevision + 1}}); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "draining")
}

// Two pages.
func (s *scripted) ListQueues(_ context.Context, request *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	if request.PageToken == "" {
		return &pb.ListQueuesResponse{Queues: []*pb.Queue{{Name: "queues/a"}}, NextPageToken: "2"}, nil
	}
	return &pb.ListQueuesResponse{Queues: []*pb.Queue{{Name: "queues/b"}}}, nil
}

func (s *scripted) GetQueue(_ context.Context, request *pb.GetQueueRequest) (*pb.GetQueueResponse, error) {
	return &pb.GetQueueResponse{Queue: &pb.Queue{Name: request.Name}}, nil
}

func (s *scripted) SetMaintenance(_ context.Context, request *pb.SetMaintenanceRequest) (*pb.SetMaintenanceResponse, error) {
	s.maintenance = &pb.Maintenance{Mode: request.Mode, Reason: request.Reason}
	return &pb.SetMaintenanceResponse{Maintenance: s.maintenance}, nil
}

func (s *scripted) GetCluster(context.Context, *pb.GetClusterRequest) (*pb.GetClusterResponse, error) {
	return &pb.GetClusterResponse{Maintenance: s.maintenance}, nil
}

func start(t *testing.T, options Options) (*scripted, *Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &scripted{}
	encoding.RegisterCodec(codec{})
	server := grpc.NewServer()
	pb.RegisterJobServiceServer(server, service)
	pb.RegisterClusterServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	options.Server = listener.Addr().String()
	client, err := Dial(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return service, client
}

func TestStreamsGoOnWhereTheyBroke(t *testing.T) {
	lost := 0
	service, client := start(t, Options{OnReconnect: func(error) { lost++ }})
	var steps []int64
	err := client.Metrics(context.Background(), "a", true, func(step *pb.StepMetrics) error {
		steps = append(steps, step.Step)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; !reflect.DeepEqual(steps, want) {
		t.Errorf("steps %v, want each once", steps)
	}
	if lost != 2 || !reflect.DeepEqual(service.offsets[:3], []int64{0, 3, 6}) {
		t.Errorf("resumed %d times from %v", lost, service.offsets)
	}
}

func TestTheFinishedJobComesAlways(t *testing.T) {
	_, client := start(t, Options{})
	var revisions []int64
	err := client.Watch(context.Background(), "a", func(now *pb.Job) error {
		revisions = append(revisions, now.Revision)
		return nil
	})
	if err != nil || !reflect.DeepEqual(revisions, []int64{1, 2, 9}) {
		t.Errorf("revisions %v, error %v", revisions, err)
	}
}

func TestQueuesAndMaintenance(t *testing.T) {
	_, client := start(t, Options{})
	queues, err := client.Queues(context.Background())
	if err != nil || len(queues) != 2 || queues[1].Name != "queues/b" {
		t.Errorf("queues %v, error %v", queues, err)
	}
	for _, name := range []string{"a", "queues/a"} {
		if queue, err := client.Queue(context.Background(), name); err != nil || queue.Name != "queues/a" {
			t.Errorf("%s gave %v, error %v", name, queue, err)
		}
	}
	set, err := client.SetMaintenance(context.Background(), pb.MaintenanceMode_MAINTENANCE_MODE_HOLD, "switch")
	if err != nil || set.Reason != "switch" {
		t.Errorf("set %v, error %v", set, err)
	}
	now, err := client.Maintenance(context.Background())
	if err != nil || now.Mode != pb.MaintenanceMode_MAINTENANCE_MODE_HOLD {
		t.Errorf("maintenance %v, error %v", now, err)
	}
}

func TestACallbackEndsAStream(t *testing.T) {
	_, client := start(t, Options{})
	seen := 0
	stop := func(with error) error {
		return client.Metrics(context.Background(), "a", true, func(*pb.StepMetrics) error {
			seen++
			return with
		})
	}
	if err := stop(ErrStop); err != nil || seen != 1 {
		t.Errorf("ErrStop gave %v after %d", err, seen)
	}
	mine := errors.New("mine")
	if err := stop(mine); err != mine {
		t.Errorf("got %v", err)
	}
}

func TestErrorsHaveTheirDetails(t *testing.T) {
	_, client := start(t, Options{})
	_, err := client.Get(context.Background(), "none")
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	if failed.Code != codes.NotFound || failed.Reason != "JOB_NOT_FOUND" || failed.Metadata["job"] != "none" ||
		len(failed.Violations) != 1 || failed.Violations[0].Field != "name" {
		t.Errorf("got %+v", failed)
	}
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "[JOB_NOT_FOUND]\n  name: is of no job") {
		t.Errorf("reads as %q", err.Error())
	}
}

func TestCallsAreRepeatedWhileTheCoordinatorIsAway(t *testing.T) {
	service, client := start(t, Options{})
	if _, err := client.Get(context.Background(), "away"); err != nil || service.tries != 3 {
		t.Errorf("error %v after %d tries", err, service.tries)
	}
}

func TestNobodyThere(t *testing.T) {
	client, err := Dial(Options{Server: "127.0.0.1:1", RetryWindow: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Get(context.Background(), "x")
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("FSDPCTL_SERVER", "h:1")
	t.Setenv("FSDPCTL_TLS_CA", "system")
	t.Setenv("FSDPCTL_ALLOW_PLAINTEXT_TOKEN", "1")
	if got := OptionsFromEnvironment(); got.Server != "h:1" || !got.TLS || got.TLSCA != "" || !got.AllowPlaintextToken {
		t.Errorf("got %+v", got)
	}
}

func TestOptionsThatContradictThemselves(t *testing.T) {
	for part, options := range map[string]Options{
		"together":    {TLSKey: "k"},
		"without TLS": {TLSServerName: "x"},
		"unencrypted": {Server: "host:1", TokenFile: "t"},
		"negative":    {CallTimeout: -1},
		"TLSCA":       {TLSCA: "/nowhere/ca.pem"},
	} {
		if _, err := Dial(options); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v gave %v, want %q", options, err, part)
		}
	}
}
