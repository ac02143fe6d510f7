"""People, organizations, memberships and invitations.

An organization is a tenant: `slug` is the tenant's name in its cell and in logins (`key@slug`), and
never changes. Its declaration to the cell is its state: active, read-only, blocked or gone.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from control_plane.tenancy.ids import TypedIdField
from control_plane.tenancy.models import DeclaredModel, TenantModel

SLUG_PATTERN = r"\A[a-z][a-z0-9-]{1,37}[a-z0-9]\Z"
TOKEN_HASH_CHARACTERS = 64
MAIL_ERROR_CHARACTERS_MAX = 500


class Role(models.TextChoices):
    """What a member may do; the table is control_plane/accounts/roles.py."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"


class UserManager(BaseUserManager["User"]):
    """People are named by their address, in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person. `is_staff` makes an operator, who sees every tenant's health and no messages."""

    id = TypedIdField("user")
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=120, blank=True, default="")
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    date_joined = models.DateTimeField(auto_now_add=True)

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects = UserManager()

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=models.Q(email=Lower("email")), name="email_in_lower_case"
            ),
        )

    def __str__(self) -> str:
        return self.email

    def save(self, *arguments: Any, **options: Any) -> None:
        self.email = self.email.lower()
        super().save(*arguments, **options)


class OrganizationState(models.TextChoices):
    """A tenant's life. Who is suspended reads on, and writes nothing; who is deleted is gone from
    the cell when the grace is over."""

    TRIAL = "trial"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    DELETED = "deleted"


class Organization(DeclaredModel):
    """A tenant. Its row is what every write of the tenant locks, so that they come one by one."""

    id = TypedIdField("org")
    name = models.CharField(max_length=120)
    slug = models.CharField(max_length=39, unique=True, validators=[RegexValidator(SLUG_PATTERN)])
    state = models.CharField(
        max_length=16, choices=OrganizationState.choices, default=OrganizationState.TRIAL
    )
    state_reason = models.CharField(max_length=500, blank=True, default="")
    plan = models.ForeignKey("quotas.Plan", on_delete=models.PROTECT, related_name="+")
    purge_after = models.DateTimeField(null=True, blank=True)
    # The last number that an outbox entry of this tenant has got.
    outbox_sequence = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.slug

    def declared(self) -> dict[str, Any]:
        return {"name": self.name}


class Membership(TenantModel):
    """Who belongs to which organization, as what."""

    id = TypedIdField("mem")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("organization", "user"), name="member_once"),
        )


class Invitation(TenantModel):
    """Somebody with this address may become a member. Of the token only a hash is kept.

    The row is the queue of its mail too: accounts/invitation_mails.py.
    """

    id = TypedIdField("inv")
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=16, choices=Role.choices)
    token_hash = models.CharField(max_length=TOKEN_HASH_CHARACTERS, unique=True)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    # As the mail says it: a person's address or a program's name.
    invited_by_name = models.CharField(max_length=254, blank=True, default="")
    mailed_at = models.DateTimeField(null=True, blank=True)
    mail_attempts = models.IntegerField(default=0)
    mail_not_before = models.DateTimeField(default=timezone.now)
    mail_error = models.CharField(max_length=MAIL_ERROR_CHARACTERS_MAX, blank=True, default="")

    class Meta:
        indexes = (
            models.Index(
                fields=("mail_not_before",),
                condition=models.Q(mailed_at=None, accepted_at=None, revoked_at=None),
                name="invitations_to_mail",
            ),
            models.Index(fields=("email", "created_at"), name="invitations_of_address"),
        )
        constraints = (
            models.UniqueConstraint(
                Lower("email"),
                "organization",
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="invited_once",
            ),
        )
