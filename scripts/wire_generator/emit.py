"""Writes one Python module per message: classes, then decoders and encoders."""

from __future__ import annotations

from scripts.wire_generator.class_writer import write_class
from scripts.wire_generator.decoder_writer import write_decoder
from scripts.wire_generator.encoder_writer import write_default_check, write_encoder
from scripts.wire_generator.model import NEVER, Message
from scripts.wire_generator.module_writer import ModuleWriter


def write_module(message: Message) -> str:
    """The source of one message's module, before formatting."""
    module = ModuleWriter(message)
    classes = [write_class(module, struct) for struct in message.structs]
    decoders = [write_decoder(module, struct) for struct in message.structs]
    encoders = [write_encoder(module, struct) for struct in message.structs]
    checks = [
        write_default_check(module, struct)
        for struct in message.structs
        if struct.name in module.default_checks
    ]
    parts = [_write_head(module), *classes, *decoders, *encoders, *checks]
    return "\n\n\n".join(parts) + "\n"


def _write_head(module: ModuleWriter) -> str:
    message = module.message
    api = "" if message.api_key is None else f" (API key {message.api_key})"
    flexible = message.first_flexible_version
    flexible_text = "never flexible" if flexible == NEVER else f"flexible from {flexible}"
    lines = [
        f'"""{message.name}{api}, versions {message.versions.first} to {message.versions.last},'
        f" {flexible_text}.",
        "",
        "Written by scripts/generate_wire; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
    ]
    if module.layouts:
        lines.append("from struct import Struct")
    if "UUID" in module.imports:
        lines.append("from uuid import UUID")
    if lines[-1]:
        lines.append("")
    names = (module.imports - {"UUID"}) | {"Message", "Reader", "Writer"}
    ordered = sorted(names, key=lambda n: (not n.isupper(), n[0].islower(), n))
    lines += [f"from data_plane.wire.primitives import {', '.join(ordered)}", ""]
    for name, layout in sorted(module.layouts.items()):
        lines.append(f'{name} = Struct(">{layout}")')
    return "\n".join(lines)
