"""The image on a broker's own disk: what it starts from while the shared store cannot be reached.

    metadata-image.json     CRC-32, space, JSON of the store's identity; newline; the image

It is the newest image that was written, not the newest there is: the store's feed brings what came
after. It also remembers which store the broker has seen and how far (StoreWentBack), and is what
`recover` makes a lost store from.

Replaced as a whole, synced; a crash leaves the old file or the new one.
"""

from __future__ import annotations

import json
import zlib

from data_plane.cell.files import CellSyncSite, FileSystem, write_file_atomically
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from data_plane.cell.metadata_store import StoreCorrupt, decoding

IMAGE_FILE = "metadata-image.json"


class ImageFile:
    """The image file in `directory`, which exists. Calls block; one at a time."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory

    @property
    def path(self) -> str:
        return f"{self._directory}/{IMAGE_FILE}"

    def write(self, image: MetadataImage, store_identity: str) -> None:
        """Replace the file, durably. Raises OSError; the old file then stays."""
        write_file_atomically(
            self._fs,
            self._directory,
            IMAGE_FILE,
            encode_image_file(image, store_identity),
            data_site=CellSyncSite.IMAGE,
            folder_site=CellSyncSite.IMAGE_FOLDER,
        )

    def read(self) -> tuple[MetadataImage, str] | None:
        """The image and the identity of its store; None when there is no file.

        Raises StoreCorrupt for a damaged one: forgetting which store was seen is for a person to
        decide. StoreTooNew, OSError."""
        try:
            data = self._fs.read_file(self.path)
        except FileNotFoundError:
            return None
        return decode_image_file(data, self.path)


def encode_image_file(image: MetadataImage, store_identity: str) -> bytes:
    """The content of an image file."""
    body = json.dumps(store_identity).encode() + b"\n" + encode_image(image)
    return b"%08x %s" % (zlib.crc32(body), body)


def decode_image_file(data: bytes, path: str) -> tuple[MetadataImage, str]:
    """The inverse of `encode_image_file`; `path` is for the message. Raises StoreCorrupt,
    StoreTooNew."""
    body = data[9:]
    if data[:9] != b"%08x " % zlib.crc32(body):
        raise StoreCorrupt(f"{path}: the checksum does not match: the file is damaged")
    with decoding(path):
        identity, image = body.split(b"\n", 1)
        return decode_image(image), json.loads(identity)
