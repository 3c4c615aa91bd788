"""The figures of docs/performance.md, measured where they are asked for."""
