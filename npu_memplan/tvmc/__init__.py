"""The tvmc command line of the microNPU flow, on today's TVM."""
