"""Seeds that have found a bug: (seed, steps, what it was). They always run, without extras.

A seed's history changes with the code and the workload, so each bug has a test of its own, too."""

from __future__ import annotations

SLOW_DISKS = frozenset({"slow disks"})
THROTTLES = frozenset({"throttles"})
FACTORS = frozenset({"factors"})
STATICS = frozenset({"static members"})
WORN_DISKS = frozenset({"worn disks"})
CLOCK_ERRORS = frozenset({"clock errors"})
BRIEF_TABLES = frozenset({"brief tables"})
LEAPS = frozenset({"leaps"})
UNDATED = frozenset({"undated"})
LARGE_STATES = frozenset({"large states"})
DRAINS = frozenset({"drains"})
RETRIES = frozenset({"retries"})

KNOWN_SEEDS: tuple[tuple[int, int, str], ...] = (
    (109, 5000, "a killed process was taken for one that lost its disk, and a shorter log led"),
    (419, 5000, "a killed broker began with an old image and led with too small an ISR"),
    (774_035, 5000, "a zombie that went on committed on an ISR between two images"),
    (10_449, 5000, "what a deposed leader had cleaned was the end of a producer's sequence"),
    (11_757, 5000, "a follower cut its log by a batch whose last offset had gone bad"),
    (11_069, 5000, "a leader sent a consumer to a follower whose log began later, for ever"),
    (20_009, 8000, "a coordinator of old, paused and without store, told offsets of long ago"),
    (10_329, 5000, "a log that began anew took the files that retention had not removed yet"),
    (10_348, 5000, "the model took for committed what a zombie added beside its unclean heir"),
    (1054, 5000, "the model did not know that who begins anew forgets producers, as in Kafka"),
    (3074, 5000, "the model took a directory that fails at a start for a power loss"),
    (5232, 5000, "the model asked a failed directory what it had synced before"),
    (6063, 5000, "bit rot struck the only copy in sync"),
    (40_305, 5000, "the model forgot what a compacted log had synced before a kill"),
    (60_165, 5000, "the model asked a replica about a log that its failing disk had half cut"),
    (6270, 5000, "a reader was not excused before its leader's loss had been noticed"),
    (10_328, 5000, "the model judged a change that the same commit had changed once more"),
    (10_619, 5000, "a cleaned log was cut, and lacked what it had dropped for records that went"),
    (20_027, 7000, "what came in the place of a damaged copy counted as cleaned"),
    (20_039, 23_100, "a leader took a log that ended at its log start for the same below it"),
    (73, 5000, "a follower whose sync had failed acknowledged what it had not synced"),
)

# The same for cells with extras: (seed, the extras, what it was).
KNOWN_SEEDS_WITH_EXTRAS: tuple[tuple[int, frozenset[str], str], ...] = (
    (
        50_650,
        SLOW_DISKS,
        "the model took a log for sound whose damage was deleted, but still noted",
    ),
    (50_661, SLOW_DISKS, "on a full disk a follower's high watermark stayed above its log end"),
    (50_874, THROTTLES, "the model did not know that a group may be empty and its log not say so"),
    (52_018, FACTORS, "a replica that was given up and added again, while its leader was paused"),
    (52_128, FACTORS, "a log made anew was taken for as clean as the one deleted before it"),
    (
        11_668,
        FACTORS | THROTTLES | {"bundles"},
        "a follower's cleaner dropped the end of a sequence whose record had gone at the leader",
    ),
    (
        10_159,
        FACTORS | THROTTLES,
        "the model left a partition to one disk whose bit rot nobody had found yet",
    ),
    (
        80_000,
        DRAINS,
        "a process that tried again to enter drew the numbers of its first attempt once more",
    ),
    (
        24,
        WORN_DISKS | CLOCK_ERRORS | FACTORS | STATICS,
        "a sync that could not be made for want of descriptors ended its replica",
    ),
    (
        75,
        WORN_DISKS | SLOW_DISKS | BRIEF_TABLES | LEAPS | {"fetch sessions"},
        "a leader whose sync could not be made counted its own copy no more",
    ),
    (
        47,
        STATICS | {"stalls"},
        "who was about to join was refused for the protocols of a member that had gone",
    ),
    (
        72,
        UNDATED | CLOCK_ERRORS | SLOW_DISKS | {"namesakes", "image steps"},
        "undated records that were appended by a clock days behind were old when it was right",
    ),
    (3220, UNDATED | CLOCK_ERRORS, "the same, on a broker and the store at once"),
    (
        10_191,
        CLOCK_ERRORS | BRIEF_TABLES | SLOW_DISKS,
        "a broker that began while all clocks were wrong deleted what was to be kept for a week",
    ),
    (10_273, CLOCK_ERRORS, "the same, for an hour"),
    (
        194,
        BRIEF_TABLES | SLOW_DISKS | THROTTLES | {"settings"},
        "the model did not know that a log which begins within a batch may have lost the rest",
    ),
    (
        11_676,
        LARGE_STATES | {"namesakes"},
        "the model did not know that a deposed leader acknowledges what its unclean heir has not",
    ),
    (
        11_495,
        DRAINS | UNDATED | STATICS | {"stalls"},
        "the same, with a stalled leader and one heir after the other",
    ),
    (10_792, SLOW_DISKS | {"fetch sessions", "namesakes", "stalls"}, "the same"),
    (
        10_870,
        LARGE_STATES | CLOCK_ERRORS | SLOW_DISKS | THROTTLES | UNDATED | {"settings"},
        "the model took an offset that was loaded without its topic's id for one of no topic",
    ),
    (
        10_353,
        LARGE_STATES | CLOCK_ERRORS | STATICS | {"image steps", "stalls"},
        "the same",
    ),
    (11_482, LARGE_STATES | CLOCK_ERRORS | {"bundles", "settings"}, "the same"),
    (
        11_043,
        DRAINS | STATICS,
        "an administrator took an answer to an earlier word for one to the last",
    ),
    (20_031, RETRIES, "nobody could be shown to lead a retry partition"),
)
