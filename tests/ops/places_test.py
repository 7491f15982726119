"""What is known of the places of tensors; a second CPU device stands in for a GPU."""

import tensorflow as tf

from tf_largeout.ops import places


def test_without_a_gpu_scopes_have_no_effect():
    assert places.first_gpu() is None
    with tf.device("CPU:1"):
        one = tf.constant(1)
        with places.host_scope(), places.scope_of(one):
            assert tf.constant(1).device.endswith("CPU:1")


def test_a_tensor_is_on_the_host_if_a_scope_says_so():
    with places.stand_in("CPU:1"):
        assert places.first_gpu() == "CPU:1"

        @tf.function
        def step(given):
            with places.host_scope():
                on_host = given + 1
            with tf.device("CPU:1"):
                on_gpu = given + 1
            assert places.are_on_host(on_host)
            assert not places.are_on_host(on_host, on_gpu)
            assert not places.are_on_host(on_host, given + 1)  # unknown
            with places.scope_of(on_host):
                assert places.are_on_host(on_host + 1)
            with places.scope_of(on_host, on_gpu):
                assert not places.are_on_host(on_host + 1)
            return on_host + on_gpu

        assert step(tf.constant(1)) == 4
        assert places.is_gpu("/job:localhost/device:CPU:1")
    assert places.is_gpu("/device:GPU:0")
    assert not places.is_gpu("/job:localhost/device:CPU:1")
    assert not places.is_gpu(None)
