module fsdpctl/client/go

go 1.19

require (
	google.golang.org/genproto v0.0.0-20200806141610-86f49bd18e98
	google.golang.org/grpc v1.33.3
	google.golang.org/protobuf v1.28.1
)
