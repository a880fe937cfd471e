"""The bytes that an engine step moves, the FLOPs that it computes, and its bottleneck. Pure: no
I/O."""
