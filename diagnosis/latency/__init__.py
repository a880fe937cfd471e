"""What a latency consists of, its slow tail, and when and for whom it grew."""
