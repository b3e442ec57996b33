package fsdp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand"
	"strings"
	"time"

	pb "fsdpctl/client/go/fsdpv1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// Client is one coordinator's API. Safe for use by several goroutines.
type Client struct {
	// Jobs and Cluster are the services as they are, with their tokens and errors as they come.
	Jobs       pb.JobServiceClient
	Cluster    pb.ClusterServiceClient
	connection *grpc.ClientConn
	options    Options
}

// ErrStop ends a stream from inside its callback; the method then returns nil.
var ErrStop = errors.New("fsdp: stop")

// Dial prepares a client; the first call connects.
func Dial(options Options) (*Client, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	transport := grpc.WithInsecure()
	if options.usesTLS() {
		config, err := options.tlsConfig()
		if err != nil {
			return nil, err
		}
		transport = grpc.WithTransportCredentials(credentials.NewTLS(config))
	}
	client := &Client{options: options}
	client.connection, err = grpc.Dial(options.Server, transport,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.ForceCodec(codec{})), grpc.WithUserAgent("fsdp-go"),
		// A coordinator is dialled directly, also where http_proxy is set for the machine.
		grpc.WithNoProxy(),
		// Notices a peer that vanished without closing the connection, while a stream is silent.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("fsdp: %w", err)
	}
	client.Jobs = pb.NewJobServiceClient(client.connection)
	client.Cluster = pb.NewClusterServiceClient(client.connection)
	return client, nil
}

// Close ends all calls and streams.
func (c *Client) Close() error { return c.connection.Close() }

// JobName is "jobs/ID" of "jobs/ID" or "ID".
func JobName(job string) string {
	if strings.HasPrefix(job, "jobs/") {
		return job
	}
	return "jobs/" + job
}

// IsFinished is true for SUCCEEDED, FAILED and CANCELLED: the job does not change any more.
func IsFinished(state pb.JobState) bool {
	return state == pb.JobState_JOB_STATE_SUCCEEDED || state == pb.JobState_JOB_STATE_FAILED ||
		state == pb.JobState_JOB_STATE_CANCELLED
}

// StateName is "RUNNING" for JOB_STATE_RUNNING.
func StateName(state pb.JobState) string { return strings.TrimPrefix(state.String(), "JOB_STATE_") }

// Submit validates, plans and enqueues; the job is on disk when it returns. An empty requestID is filled in, so
// that a repeat after a lost answer makes no second job.
func (c *Client) Submit(ctx context.Context, job *pb.TrainingJob, requestID string) (*pb.Job, error) {
	if requestID == "" {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return nil, err
		}
		requestID = fmt.Sprintf("%x", random)
	}
	var response *pb.CreateJobResponse
	err := c.call(ctx, true, func(ctx context.Context) (err error) {
		response, err = c.Jobs.CreateJob(ctx, &pb.CreateJobRequest{Job: job, RequestId: requestID})
		return err
	})
	return response.GetJob(), err
}

// Get is one job.
func (c *Client) Get(ctx context.Context, job string) (*pb.Job, error) {
	var response *pb.GetJobResponse
	err := c.call(ctx, true, func(ctx context.Context) (err error) {
		response, err = c.Jobs.GetJob(ctx, &pb.GetJobRequest{Name: JobName(job)})
		return err
	})
	return response.GetJob(), err
}

// Cancel stops a job and saves nothing.
func (c *Client) Cancel(ctx context.Context, job, reason string) (*pb.Job, error) {
	var response *pb.CancelJobResponse
	err := c.call(ctx, true, func(ctx context.Context) (err error) {
		response, err = c.Jobs.CancelJob(ctx, &pb.CancelJobRequest{Name: JobName(job), Reason: reason})
		return err
	})
	return response.GetJob(), err
}

// List is all jobs that the filter lets through, newest first.
func (c *Client) List(ctx context.Context, filter *pb.ListJobsRequest) ([]*pb.Job, error) {
	request := &pb.ListJobsRequest{PageSize: 500, States: filter.GetStates(), Queue: filter.GetQueue(),
		Labels: filter.GetLabels(), ReadMask: filter.GetReadMask()}
	var jobs []*pb.Job
	for {
		var page *pb.ListJobsResponse
		err := c.call(ctx, true, func(ctx context.Context) (err error) {
			page, err = c.Jobs.ListJobs(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, page.Jobs...)
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return jobs, nil
		}
	}
}

// Queues are the configured queues by name, and those that only jobs name: quotas, what is used, borrowed and waited
// for.
func (c *Client) Queues(ctx context.Context) ([]*pb.Queue, error) {
	request := &pb.ListQueuesRequest{}
	var queues []*pb.Queue
	for {
		var page *pb.ListQueuesResponse
		err := c.call(ctx, true, func(ctx context.Context) (err error) {
			page, err = c.Cluster.ListQueues(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		queues = append(queues, page.Queues...)
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return queues, nil
		}
	}
}

// Queue is one of them.
func (c *Client) Queue(ctx context.Context, queue string) (*pb.Queue, error) {
	if !strings.HasPrefix(queue, "queues/") {
		queue = "queues/" + queue
	}
	var response *pb.GetQueueResponse
	err := c.call(ctx, true, func(ctx context.Context) (err error) {
		response, err = c.Cluster.GetQueue(ctx, &pb.GetQueueRequest{Name: queue})
		return err
	})
	return response.GetQueue(), err
}

// Maintenance is the mode that is set, by whom and why.
func (c *Client) Maintenance(ctx context.Context) (*pb.Maintenance, error) {
	var response *pb.GetClusterResponse
	err := c.call(ctx, true, func(ctx context.Context) (err error) {
		response, err = c.Cluster.GetCluster(ctx, &pb.GetClusterRequest{})
		return err
	})
	return response.GetMaintenance(), err
}

// SetMaintenance holds jobs back (HOLD), refuses new ones too (CLOSED), or ends that (OFF). What runs goes on.
func (c *Client) SetMaintenance(ctx context.Context, mode pb.MaintenanceMode, reason string) (*pb.Maintenance, error) {
	var response *pb.SetMaintenanceResponse
	err := c.call(ctx, true, func(ctx context.Context) (err error) {
		response, err = c.Cluster.SetMaintenance(ctx, &pb.SetMaintenanceRequest{Mode: mode, Reason: reason})
		return err
	})
	return response.GetMaintenance(), err
}

// Watch gives the job as it is, then as it changes, until it is finished; the finished job comes always. The
// context's deadline limits it.
func (c *Client) Watch(ctx context.Context, job string, each func(*pb.Job) error) error {
	request := &pb.WatchJobRequest{Name: JobName(job)}
	finished := false
	deliver := func(now *pb.Job) error {
		request.AfterRevision = now.Revision
		finished = IsFinished(now.State)
		return each(now)
	}
	for try := 0; !finished; try++ {
		err := c.stream(ctx, func(ctx context.Context) (receiver, error) {
			stream, err := c.Jobs.WatchJob(ctx, request)
			return func() error {
				response, err := stream.Recv()
				if err != nil {
					return err
				}
				return callback(deliver(response.Job))
			}, err
		})
		if err != nil || finished {
			return unwrapStop(err)
		}
		// The server ended the watch of an unfinished job, or the job finished at the revision seen last.
		now, err := c.Get(ctx, job)
		if err != nil {
			return err
		}
		if IsFinished(now.State) {
			if now.Revision == request.AfterRevision {
				return nil
			}
			return unwrapStop(callback(deliver(now)))
		}
		if err := sleep(ctx, backoff(try)); err != nil {
			return err
		}
	}
	return nil
}

// Metrics gives one StepMetrics per step, with follow until the job is finished.
func (c *Client) Metrics(ctx context.Context, job string, follow bool, each func(*pb.StepMetrics) error) error {
	request := &pb.StreamMetricsRequest{Name: JobName(job), Follow: follow}
	wasFinished := false
	for try := 0; ; try++ {
		err := c.stream(ctx, func(ctx context.Context) (receiver, error) {
			stream, err := c.Jobs.StreamMetrics(ctx, request)
			return func() error {
				response, err := stream.Recv()
				if err != nil {
					return err
				}
				for _, metrics := range response.Metrics {
					if metrics.Offset <= request.AfterOffset {
						continue
					}
					request.AfterOffset = metrics.Offset
					if err := callback(each(metrics)); err != nil {
						return err
					}
				}
				return nil
			}, err
		})
		if err != nil || !follow || wasFinished {
			return unwrapStop(err)
		}
		// Finished only now: what came between the stream's end and this look is still to be read.
		now, err := c.Get(ctx, job)
		if err != nil {
			return err
		}
		if wasFinished = IsFinished(now.State); !wasFinished {
			if err := sleep(ctx, backoff(try)); err != nil {
				return err
			}
		}
	}
}

// receiver takes one message of a stream; io.EOF is its good end.
type receiver func() error

// callbackError marks what a callback returned: nothing to try again.
type callbackError struct{ err error }

func (e callbackError) Error() string { return e.err.Error() }

func callback(err error) error {
	if err == nil {
		return nil
	}
	return callbackError{err}
}

func unwrapStop(err error) error {
	var from callbackError
	if !errors.As(err, &from) {
		return err
	}
	if errors.Is(from.err, ErrStop) {
		return nil
	}
	return from.err
}

func (c *Client) withToken(ctx context.Context) (context.Context, error) {
	token, err := c.options.token()
	if err != nil || token == "" {
		return ctx, err
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}

// call runs one unary call; UNAVAILABLE is repeated within RetryWindow where that is safe.
func (c *Client) call(ctx context.Context, repeatable bool, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	until := time.Now().Add(c.options.RetryWindow)
	for try := 0; ; try++ {
		withToken, err := c.withToken(ctx)
		if err != nil {
			return err
		}
		if err = run(withToken); err == nil {
			return nil
		}
		failed := toError(err, c.options.Server)
		wait := backoff(try)
		if !repeatable || !failed.mayPass() || time.Now().Add(wait).After(until) {
			return failed
		}
		if sleep(ctx, wait) != nil {
			return failed
		}
	}
}

// stream opens and reads until the server ends the stream well. A connection that delivered starts a new window; one
// that only opens and closes does not.
func (c *Client) stream(ctx context.Context, open func(context.Context) (receiver, error)) error {
	until := time.Now().Add(c.options.RetryWindow)
	for try := 0; ; try++ {
		delivered, err := c.readAll(ctx, open)
		var stopped callbackError
		if err == nil || errors.As(err, &stopped) {
			return err
		}
		if ctx.Err() != nil {
			return toError(err, c.options.Server)
		}
		failed := toError(err, c.options.Server)
		if delivered {
			try = 0
			until = time.Now().Add(c.options.ReconnectWindow)
		}
		wait := backoff(try)
		if !failed.mayPass() || time.Now().Add(wait).After(until) {
			return failed
		}
		if c.options.OnReconnect != nil {
			c.options.OnReconnect(failed)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (c *Client) readAll(ctx context.Context, open func(context.Context) (receiver, error)) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, err := c.withToken(ctx)
	if err != nil {
		return false, callback(err)
	}
	receive, err := open(ctx)
	if err != nil {
		return false, err
	}
	for delivered := false; ; delivered = true {
		if err := receive(); err == io.EOF {
			return delivered, nil
		} else if err != nil {
			return delivered, err
		}
	}
}

// backoff is 50 ms doubled each time up to 1 s, times 0.5 to 1.
func backoff(try int) time.Duration {
	seconds := math.Min(1, 0.05*math.Pow(2, float64(try)))
	return time.Duration(seconds * (0.5 + 0.5*mathrand.Float64()) * float64(time.Second))
}

func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		code := codes.Canceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = codes.DeadlineExceeded
		}
		return &Error{Code: code, Message: ctx.Err().Error()}
	case <-time.After(duration):
		return nil
	}
}
