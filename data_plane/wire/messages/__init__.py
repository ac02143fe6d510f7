"""Message classes and their codecs, one module per message. Written by scripts/generate_wire;
do not edit."""
