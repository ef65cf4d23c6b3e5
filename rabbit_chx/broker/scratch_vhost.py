"""A vhost that exists while a block runs, and is deleted whatever ends the block."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rabbit_chx.broker.management import Management
from rabbit_chx.errors import BrokerRefusedError, NotFoundError, RabbitChxError, UnreachableError

_REMOVAL_TRIES = 5
_REMOVAL_PAUSE_S = 0.5
_SERVER_ERROR = 500


@contextmanager
def scratch_vhost(management: Management, user: str | None = None) -> Iterator[str]:
    """Create a vhost for a block; it is deleted with all that is in it, also where the block is interrupted.

    Args:
        management: the broker's HTTP API, with a user who may create vhosts.
        user: a further user who gets all permissions in the vhost; None for none.

    Yields:
        The name of the vhost.

    Raises:
        AccessRefusedError: the user may not create vhosts.
        BrokerRefusedError: the broker refuses the vhost or the permissions.
        UnreachableError: nothing answers at the address.
    """
    name = f"rabbit_chx-{secrets.token_hex(4)}"
    try:
        management.request("PUT", "vhosts", name)
    except BaseException as error:
        refused = (
            isinstance(error, BrokerRefusedError) and (error.reply_code or _SERVER_ERROR) < _SERVER_ERROR
        )
        if not refused:
            _remove(management, name, may_still_appear=True)
        raise
    try:
        if user is not None:
            everything = dict.fromkeys(("configure", "write", "read"), ".*")
            management.request("PUT", "permissions", name, user, body=everything)
        yield name
    finally:
        _remove(management, name, may_still_appear=False)


def _remove(management: Management, name: str, *, may_still_appear: bool) -> None:
    try:
        _try_to_remove(management, name, may_still_appear=may_still_appear)
    except KeyboardInterrupt:  # the first signal comes while the vhost is deleted
        _try_to_remove(management, name, may_still_appear=may_still_appear)
        raise


def _try_to_remove(management: Management, name: str, *, may_still_appear: bool) -> None:
    """Delete the vhost, more than once if need be: a large one takes its time, and a request may have been
    cut short.
    """
    for last in (*(False,) * (_REMOVAL_TRIES - 1), True):
        try:
            management.request("DELETE", "vhosts", name)
        except NotFoundError:
            if not may_still_appear:
                return
        except RabbitChxError as error:
            if last:
                kind = UnreachableError if isinstance(error, UnreachableError) else BrokerRefusedError
                raise kind(
                    f"the temporary vhost {name!r} {'may be' if may_still_appear else 'is'} left ({error}): run rabbitmqctl delete_vhost {name}"
                ) from error  # the error that ended the block, if any, is in the chain
        else:
            return
        time.sleep(_REMOVAL_PAUSE_S)
