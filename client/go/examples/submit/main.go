// Submits a small job, prints each step's loss as it comes, and ends by the job's result.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"fsdpctl/client/go/fsdp"
	pb "fsdpctl/client/go/fsdpv1"

	"google.golang.org/protobuf/proto"
)

func tinyJob() *pb.TrainingJob {
	return &pb.TrainingJob{
		ApiVersion: "fsdp.v1",
		Kind:       "TrainingJob",
		Metadata:   &pb.Metadata{Name: "from-go"},
		Spec: &pb.JobSpec{
			Model: &pb.ModelSpec{Family: pb.ModelFamily_MODEL_FAMILY_LLAMA, VocabSize: proto.Int64(64), Dim: proto.Int64(32),
				NumLayers: proto.Int32(2), NumHeads: proto.Int32(2), MlpDim: proto.Int64(64)},
			Data:  &pb.DataSpec{Source: pb.DataSource_DATA_SOURCE_SYNTHETIC, SequenceLength: 32},
			Train: &pb.TrainSpec{GlobalBatch: 4},
			Resources: &pb.ResourceSpec{Nodes: proto.Int32(1), DevicesPerNode: proto.Int32(2),
				Device: pb.DeviceType_DEVICE_TYPE_CPU},
			Limits: &pb.LimitSpec{MaxSteps: 5},
		},
	}
}

func run() error {
	client, err := fsdp.Dial(fsdp.OptionsFromEnvironment())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	job, err := client.Submit(ctx, tinyJob(), "")
	if err != nil {
		return err
	}
	fmt.Println("submitted", job.Name)
	err = client.Metrics(ctx, job.Name, true, func(step *pb.StepMetrics) error {
		fmt.Printf("step %d loss %.4f\n", step.Step, step.Loss)
		return nil
	})
	if err != nil {
		return err
	}
	err = client.Watch(ctx, job.Name, func(now *pb.Job) error {
		job = now
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println("ended", fsdp.StateName(job.State))
	if job.State != pb.JobState_JOB_STATE_SUCCEEDED {
		return errors.New(job.Reason)
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
