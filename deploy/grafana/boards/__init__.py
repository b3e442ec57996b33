"""All dashboards, in the order in which they are useful."""

from boards import cluster, communication, gpu, job, memory, profiler, roofline

ALL = [cluster.BOARD, job.BOARD, roofline.BOARD, communication.BOARD, memory.BOARD, gpu.BOARD, profiler.BOARD]
