"""VRAM, speed and cost models; recommendations and their verification."""
