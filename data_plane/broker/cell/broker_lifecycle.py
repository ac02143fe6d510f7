"""This broker as a member of its cell: heartbeats, registration, the controller's lease.

    heartbeat every broker.heartbeat.interval.ms, faster while a broker has just registered, or
      │        when the controller seems to be gone
      ├─ the store knows a newer image            → the follower reads it
      ├─ this incarnation is not registered yet   → it registers (it began while the store was away)
      └─ the controller lease is ours             → the controller decides, until the lease ends

The controller's lease lasts LEASE_HEARTBEATS of its heartbeats from before one was sent, by its own
clock; the store counts from when it came, so it never believes in a lease for less long. It is
shorter than a session, and the controller renews it more often: a new controller has to watch the
others for a whole session before it may call anybody dead, so it had better begin soon. For the
same reason the others look more often once the controller's renewals stand still, so that somebody
takes the lease when it ends; and the controller looks when somebody's session may be over, not at
the next heartbeat after it. Heartbeats do not overlap: one that hangs is waited for, and meanwhile
the lease runs out as it should.

What stops a leader is a higher leader epoch, which comes with the image; a broker that is fenced,
or cannot reach the store, goes on serving what it leads. Only a broker whose number belongs to
another process now (`on_superseded`) has to end.

Invariants
- The controller decides only while its lease is valid by this broker's clock, and each of its
  commits names its epoch, so that the store refuses what comes too late all the same.
- At most one plan or commit of the controller is under way.
- A number that another incarnation has registered is never taken back.

Deliberately absent: who is alive and what follows from it (data_plane/cell/controller.py), and
leaving in good order (controlled_shutdown.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.cell.changes import Change
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.cell.metadata_store import BrokerSession, Heartbeat, StaleControllerEpoch
from data_plane.cell.registration import RegistrationRefused, decide_registration

if TYPE_CHECKING:
    from data_plane.broker.cell.metadata_follower import MetadataFollower
    from data_plane.broker.services import Services
    from data_plane.cell.controller import Controller, Plan


# How many times faster heartbeats come while a broker waits to be let in, or for the lease.
URGENT_HEARTBEATS = 5
# The controller's heartbeats come three for two of the others.
CONTROLLER_PAUSE_SHARE = (2, 3)
# The controller's lease, in heartbeats of the controller: one may be late, and two lost.
LEASE_HEARTBEATS = 4


class Superseded(Exception):
    """This broker's number belongs to another incarnation, or to nobody any more."""


class Membership:
    """A component; see the module."""

    def __init__(
        self,
        services: Services,
        now_ms: Callable[[], int],
        follower: MetadataFollower,
        controller: Controller,
        broker: BrokerImage,
        clean_broker_epoch: int | None,
    ) -> None:
        """`broker` is this incarnation; when the image has another one of the same number, that is
        the last life of the same data directory, and `broker` takes its place, naming
        `clean_broker_epoch`, as soon as the store can be reached."""
        self._services = services
        self._now_ms = now_ms
        self._follower = follower
        self.controller = controller
        self._broker = broker
        self._clean_broker_epoch = clean_broker_epoch
        self._interval_ms = services.config.get_int("broker.heartbeat.interval.ms")
        self._session_ms = services.config.get_int("broker.session.timeout.ms")
        share, whole = CONTROLLER_PAUSE_SHARE
        self._controller_interval_ms = max(1, share * self._interval_ms // whole)
        self._lease_ms = LEASE_HEARTBEATS * self._controller_interval_ms
        known = services.image.brokers.get(broker.node_id)
        self._incarnation_before = "" if known is None else known.incarnation_id
        self._has_registered = self.is_registered
        self._next_ms = 0
        self._is_sending = False
        self._is_registering = False
        self._is_deciding = False
        self._is_stopped = False
        self._is_leaving = False
        self._is_store_lost = False
        self._controller_until_ms = 0
        self._hurry_until_ms = 0
        # The controller's session as it was last seen to move, and when.
        self._holder: BrokerSession | None = None
        self._holder_since_ms = 0
        self._is_holder_silent = False
        # When the last heartbeat was sent that was answered, and the store's version then.
        self._heard_ms = -self._session_ms
        self._heard_version = -1
        # When the newest heartbeat was sent whose version this image has.
        self._vouched_ms: int | None = None
        self._on_released: Callable[[], None] | None = None
        # Told once, with the reason, when this process has no right to its number any more.
        self.on_superseded: Callable[[str], None] | None = None
        self.is_superseded = False
        self.missed_heartbeats_count = 0
        services.image_listeners.append(self._image_changed)

    # What others want to know.

    @property
    def registered(self) -> BrokerImage | None:
        """This incarnation as the image has it."""
        known = self._services.image.brokers.get(self._broker.node_id)
        if known is None or known.incarnation_id != self._broker.incarnation_id:
            return None
        return known

    @property
    def is_registered(self) -> bool:
        return self.registered is not None

    @property
    def is_active(self) -> bool:
        """Whether clients are told of this broker and it may be elected."""
        registered = self.registered
        return registered is not None and not registered.is_fenced

    @property
    def is_store_lost(self) -> bool:
        """Whether the last heartbeat had no answer."""
        return self._is_store_lost

    def is_image_current(self, now_ms: int) -> bool:
        """Whether nobody can have taken this broker for dead without its image saying so: the store
        has answered within half the session timeout, and the image is as new as that. Half, because
        another broker's clock decides when it is over."""
        is_heard = now_ms < self._heard_ms + self._session_ms // 2
        return is_heard and self._services.image.version >= self._heard_version

    def image_doubt(self, now_ms: int) -> str:
        """Why what the image says may be over; "" while the store has vouched for it within the
        session timeout, after which others may have gone on without this broker."""
        if self._vouched_ms is None:
            return "this broker has not heard from the metadata store since its start"
        if now_ms - self._vouched_ms > self._session_ms:
            return f"the metadata store has not vouched for the image in {self._session_ms} ms"
        return ""

    def _note_vouched(self) -> None:
        if self._services.image.version >= self._heard_version >= 0:
            self._vouched_ms = self._heard_ms

    @property
    def is_controller(self) -> bool:
        return self.controller.epoch is not None

    @property
    def broker_epoch_at_stop(self) -> int | None:
        """What the clean-shutdown mark has to say: under which broker epoch these logs are whole.
        None when another incarnation has taken over."""
        if self.is_superseded:
            return None
        registered = self.registered
        return self._clean_broker_epoch if registered is None else registered.broker_epoch

    # The component.

    def start(self, now_ms: int) -> None:
        self._next_ms = now_ms
        self._hurry_until_ms = now_ms + self._session_ms

    def next_deadline_ms(self) -> int | None:
        if self._is_stopped:
            return None
        if self._is_sending:
            return self._controller_until_ms if self.is_controller else None
        return self._next_ms

    def tick(self, now_ms: int) -> None:
        if self._is_stopped:
            return
        if self.is_controller and now_ms >= self._controller_until_ms:
            self._stand_down("the lease has run out")
        if not self._is_sending and now_ms >= self._next_ms:
            self._send(now_ms)

    def stop(self, now_ms: int) -> None:
        self._is_stopped = True
        if self.is_controller:
            self._stand_down("this broker stops")

    def release_control(self, on_released: Callable[[], None]) -> None:
        """Give the controller's lease back, so that another broker takes it at once. `on_released`
        is called when that is done or has failed."""
        self._is_leaving = True
        self._on_released = on_released
        if not self._is_sending:
            self._send(self._now_ms())

    # Heartbeats.

    def _send(self, sent_ms: int) -> None:
        services, broker = self._services, self._broker
        self._is_sending = True
        is_release = self._on_released is not None
        wants_controller = not self._is_leaving and self.is_registered

        def heartbeat() -> Heartbeat:
            return services.store.heartbeat(
                broker.node_id,
                broker.incarnation_id,
                self._lease_ms,
                wants_controller=wants_controller,
            )

        def done(answer: Heartbeat | None, error: BaseException | None) -> None:
            self._is_sending = False
            now_ms = self._now_ms()
            if answer is None:
                self._is_holder_silent = False
            else:
                self._watch_holder(answer, now_ms)
            self._next_ms = max(now_ms, sent_ms + self._pause_ms(now_ms))
            if not self._is_stopped:
                if answer is None:
                    self._missed(error)
                else:
                    self._answered(answer, sent_ms, now_ms)
                    self._look_in_time(now_ms)
            if is_release:
                self._released()
            elif self._on_released is not None:
                self._send(now_ms)

        services.store_executor.submit(heartbeat, done)

    def _pause_ms(self, now_ms: int) -> int:
        """Heartbeats come faster for a while after a broker has registered: it is let in when the
        controller has seen its session move between two looks. And while the controller is
        silent."""
        is_concerned = self.is_controller or not self.is_active
        if (now_ms < self._hurry_until_ms and is_concerned) or self._is_holder_silent:
            return max(1, self._interval_ms // URGENT_HEARTBEATS)
        return self._controller_interval_ms if self.is_controller else self._interval_ms

    def _watch_holder(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """Whether the lease of another broker is about to end, as far as can be seen: the same
        heartbeats renew its session, which has not moved for longer than they are apart."""
        lease = heartbeat.controller
        session = None
        if lease is not None and not lease.is_ours and not self._is_leaving and self.is_registered:
            session = heartbeat.sessions.get(lease.node_id)
        if session != self._holder:
            self._holder, self._holder_since_ms = session, now_ms
        silent_ms = now_ms - self._holder_since_ms
        self._is_holder_silent = session is not None and silent_ms > self._controller_interval_ms

    def _look_in_time(self, now_ms: int) -> None:
        """The controller's next heartbeat is no later than somebody's death."""
        look_ms = self.controller.next_look_ms()
        if look_ms is not None:
            self._next_ms = max(now_ms, min(self._next_ms, look_ms))

    def _released(self) -> None:
        on_released, self._on_released = self._on_released, None
        if on_released is not None:
            on_released()

    def _missed(self, error: BaseException | None) -> None:
        self.missed_heartbeats_count += 1
        self.controller.observe_failure()
        if not self._is_store_lost:
            self._is_store_lost = True
            self._services.log.warning("heartbeat_missed", error=repr(error))

    def _answered(self, heartbeat: Heartbeat, sent_ms: int, now_ms: int) -> None:
        if self._is_store_lost:
            self._is_store_lost = False
            self._services.log.info("heartbeats_again")
        services = self._services
        self._heard_ms, self._heard_version = sent_ms, heartbeat.version
        self._note_vouched()
        services.wall_clock.store_answered(heartbeat.store_ms, sent_ms, now_ms)
        was_controller = self.is_controller
        self.controller.configure(controller_settings(services.config))
        if now_ms >= sent_ms + self._lease_ms:
            # An answer about a lease that may be over by now.
            self.controller.observe_loss()
        else:
            self.controller.observe_heartbeat(heartbeat, services.newest_image, now_ms)
        if self.is_controller:
            self._controller_until_ms = sent_ms + self._lease_ms
            if not was_controller:
                services.log.info("controller_elected", epoch=self.controller.epoch)
        elif was_controller:
            services.log.info("controller_resigned", reason="another broker has the lease")
        self._follower.note_store_version(heartbeat.version, now_ms)
        if not self._has_registered:
            self._register()
        self._control(now_ms)

    # Registration.

    def _register(self) -> None:
        """Take the place of the last life of this data directory."""
        if self._is_registering or self.is_superseded:
            return
        self._is_registering = True
        node_id = self._broker.node_id

        def decide(image: MetadataImage) -> Sequence[Change]:
            known = image.brokers.get(node_id)
            incarnation = "" if known is None else known.incarnation_id
            if incarnation not in (self._incarnation_before, self._broker.incarnation_id):
                raise Superseded
            settings = controller_settings(self._services.config)
            return decide_registration(image, self._broker, self._clean_broker_epoch, settings)

        def done(error: BaseException | None) -> None:
            self._is_registering = False
            if isinstance(error, Superseded):
                self._supersede("another process has registered under its number")
            elif isinstance(error, RegistrationRefused):
                self._supersede(str(error))
            elif error is not None:
                self._services.log.warning("registration_failed", error=repr(error))

        self._services.metadata.write(decide, done)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        self._note_vouched()
        if old.brokers is not new.brokers:
            self._follow_own_state(old, new)
            if _incarnations(new) - _incarnations(old):
                self._hurry_until_ms = now_ms + self._session_ms
                self._next_ms = min(self._next_ms, now_ms + self._pause_ms(now_ms))
        self._control(now_ms)

    def _follow_own_state(self, old: MetadataImage, new: MetadataImage) -> None:
        node_id = self._broker.node_id
        was, now = old.brokers.get(node_id), new.brokers.get(node_id)
        if now is None or now.incarnation_id != self._broker.incarnation_id:
            if self._has_registered:
                self._supersede(
                    "its number is not registered any more"
                    if now is None
                    else "another process has registered under its number"
                )
            return
        log = self._services.log
        if not self._has_registered:
            self._has_registered = True
            log.info("registered", broker_epoch=now.broker_epoch)
            self._services.logs.set_broker_epoch(now.broker_epoch)
            # What the image had before was the life before.
            was = None
        if was is None or was.is_fenced != now.is_fenced:
            if now.is_fenced:
                log.warning("fenced", broker_epoch=now.broker_epoch)
            else:
                log.info("unfenced", broker_epoch=now.broker_epoch)

    def _supersede(self, reason: str) -> None:
        if self.is_superseded:
            return
        self.is_superseded = True
        self._services.log.error("superseded", reason=reason)
        if self.is_controller:
            self._stand_down("superseded")
        if self.on_superseded is not None:
            self.on_superseded(reason)

    # The controller.

    def _control(self, now_ms: int) -> None:
        """Have committed what the controller wants."""
        controller = self.controller
        epoch = controller.epoch
        if epoch is None or self._is_deciding or self._is_stopped or self.is_superseded:
            return
        if now_ms >= self._controller_until_ms:
            self._stand_down("the lease has run out")
            return
        plan = controller.plan(self._services.newest_image, now_ms)
        if plan is None:
            return
        planned = partial(self._planned, plan, epoch)
        if plan.is_large:
            self._is_deciding = True
            # Not where files are read and written: a slow disk must not keep anybody from leading.
            self._services.store_executor.submit(plan.make, planned)
        else:
            planned(plan.make(), None)

    def _planned(
        self,
        plan: Plan,
        epoch: int,
        changes: Sequence[Change] | None,
        error: BaseException | None,
    ) -> None:
        """It is known what is to be done; have it committed."""
        self._is_deciding = False
        controller = self.controller
        if changes is None:
            assert error is not None
            raise error
        if controller.epoch != epoch or self._is_stopped or self.is_superseded:
            return
        if not controller.take(plan, changes):
            if self._services.newest_image is not plan.image:
                self._control(self._now_ms())
            return
        self._is_deciding = True

        def decide(image: MetadataImage) -> Sequence[Change]:
            is_valid = controller.epoch == epoch and self._now_ms() < self._controller_until_ms
            return controller.decide(image) if is_valid else ()

        def done(error: BaseException | None) -> None:
            self._is_deciding = False
            if isinstance(error, StaleControllerEpoch):
                if controller.epoch == epoch:
                    self._stand_down("the epoch is over")
            elif error is not None:
                self._services.log.error("controller_commit_failed", error=repr(error))
            else:
                # One commit holds a bounded part of what is to be done.
                self._control(self._now_ms())

        # Who was dead when this was decided may be back once a store that was away has it.
        self._services.metadata.write(decide, done, epoch, self._controller_until_ms)

    def _stand_down(self, reason: str) -> None:
        self._services.log.info("controller_resigned", reason=reason)
        self.controller.observe_loss()


def _incarnations(image: MetadataImage) -> set[str]:
    return {broker.incarnation_id for broker in image.brokers.values()}
