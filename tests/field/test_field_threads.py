"""Work on all cores holds the matrix library back for as long as it runs, and no longer."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread, get_ident

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from thera.field.threads import on_all_cores, one_core


def product_threads() -> set[int]:
    blas = ThreadpoolController().select(user_api="blas")
    return {library["num_threads"] for library in blas.info()}


def set_product_threads(count: int) -> None:
    """Sets it from a thread that is gone then: the one that set it last may keep others from doing so."""
    setter = Thread(target=threadpool_limits, args=(count, "blas"))
    setter.start()
    setter.join()


@pytest.fixture
def two_threads():
    before = product_threads()
    set_product_threads(2)
    if product_threads() != {2}:
        pytest.skip("this NumPy has no matrix library whose threads can be set")
    yield
    set_product_threads(max(before))


def test_several_callers_at_once_leave_the_products_as_they_found_them(two_threads):
    inside, seen = Barrier(3), []

    def work(item: int) -> int:
        inside.wait(10)  # all three callers are within
        seen.append(product_threads())
        return item

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda item: on_all_cores(work, [item]), range(3))) == [[0], [1], [2]]
    assert seen == [{1}] * 3
    assert product_threads() == {2}


def test_within_one_core_the_calling_thread_does_all_the_work(two_threads):
    meeting = Barrier(2, timeout=10)

    def work(item: int) -> int:
        meeting.wait()  # unless two threads come here, this breaks
        return get_ident()

    assert len(set(on_all_cores(work, [0, 1]))) == 2
    with one_core():
        assert set(on_all_cores(lambda item: get_ident(), [0, 1])) == {get_ident()}
    assert len(set(on_all_cores(work, [0, 1]))) == 2
