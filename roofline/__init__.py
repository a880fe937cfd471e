"""The bytes and FLOPs of an engine's steps, and the engine's bottleneck. Pure: no I/O."""
