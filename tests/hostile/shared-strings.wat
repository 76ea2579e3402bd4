;; W9: a request with 10^6 headers whose names and values are all one buffer of 64 KiB: 122 GiB, to
;; a host that copies.
(memory $memory (export "memory") 256)
(func $next (export "weir:plugin/adapter@0.1.0#[method]exchange.next") (param $self i32) (result i32)
  (local $header i32)
  (local $end i32)
  (memory.fill (i32.const 0x10000) (i32.const 0x78) (i32.const 0x10000))
  (local.set $header (i32.const 0x20000))
  (local.set $end (i32.add (local.get $header) (i32.const 16_000_000)))
  (loop $again
    (i32.store offset=0 (local.get $header) (i32.const 0x10000))
    (i32.store offset=4 (local.get $header) (i32.const 0x10000))
    (i32.store offset=8 (local.get $header) (i32.const 0x10000))
    (i32.store offset=12 (local.get $header) (i32.const 0x10000))
    (local.set $header (i32.add (local.get $header) (i32.const 16)))
    (br_if $again (i32.lt_u (local.get $header) (local.get $end))))
  (i32.store (i32.const 160) (i32.const 0)) ;; ok
  (i32.store (i32.const 164) (i32.const 0)) ;; send
  (i32.store (i32.const 168) (i32.const 48)) ;; method
  (i32.store (i32.const 172) (i32.const 4))
  (i32.store (i32.const 176) (i32.const 56)) ;; path
  (i32.store (i32.const 180) (i32.const 15))
  (i32.store (i32.const 184) (i32.const 0x20000)) ;; headers
  (i32.store (i32.const 188) (i32.const 1_000_000))
  (i32.store (i32.const 192) (i32.const 0)) ;; body
  (i32.store (i32.const 196) (i32.const 0))
  (i32.const 160))
