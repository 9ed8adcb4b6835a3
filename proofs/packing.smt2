; Elements and bytes: two elements of four bits make a byte, and alignment carries over.

; formula row-bytes of plan::tensors::bytes: bytes of a row of `cols` elements, whole
(define-fun row-bytes ((cols Int) (bits Int)) Int
  (ite (= (mod (* cols bits) 8) 0) (div (* cols bits) 8) (+ (div (* cols bits) 8) 1)))

; formula byte of layout::grid::address: the first byte of the element with a storage index
(define-fun byte ((index Int) (bits Int)) Int (div (* index bits) 8))

; formula low-shift of layout::grid::address: its shift where the even nibble is the low one
(define-fun low-shift ((index Int)) Int (* 4 (mod index 2)))

; formula high-shift of layout::grid::address: its shift where the even nibble is the high one
(define-fun high-shift ((index Int)) Int (* 4 (- 1 (mod index 2))))

; formula aiter-width of plan::sizes::formula: AITER's padded width of packed w2, in elements, for a logical width
(define-fun aiter-width ((width Int)) Int
  (* 2 (ite (= (mod (div width 2) 128) 0) (div width 2) (* 128 (+ (div (div width 2) 128) 1)))))

; lemma even-rows-fill-their-bytes: An even row of nibbles takes half as many bytes.
(push)
(declare-const k Int)
(assert (>= k 0))
(assert (not (= (row-bytes (* 2 k) 4) k)))
(check-sat) ; unsat
(pop)

; lemma odd-rows-keep-their-last-nibble: An odd row of nibbles takes the byte of its last element too.
(push)
(declare-const k Int)
(assert (>= k 0))
(assert (not (= (row-bytes (+ (* 2 k) 1) 4) (+ k 1))))
(check-sat) ; unsat
(pop)

; lemma aligned-elements-are-aligned-bytes: A granule of 2 a elements of four bits is one of a bytes, for every a that a rule asks for.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (or (= a 16) (= a 32) (= a 64) (= a 128) (= a 256)) (= (mod n (* 2 a)) 0)))
(assert (not (= (mod (row-bytes n 4) a) 0)))
(check-sat) ; unsat
(pop)

; lemma sixteen-elements-are-not-sixteen-bytes: A granule of sixteen elements of four bits is not one of sixteen bytes.
(push)
(declare-const n Int)
(assert (and (> n 0) (= (mod n 16) 0)))
(assert (not (= (mod (row-bytes n 4) 16) 0)))
(check-sat) ; sat
(pop)

; lemma nibbles-have-places-of-their-own: Two nibbles never share byte and shift, in either order.
(push)
(declare-const i Int) (declare-const j Int)
(assert (and (<= 0 i) (< i j) (= (byte i 4) (byte j 4))))
(assert (or (= (low-shift i) (low-shift j)) (= (high-shift i) (high-shift j))))
(check-sat) ; unsat
(pop)

; lemma whole-elements-do-not-overlap: Elements of 8, 16 or 32 bits end where the next begins, or before.
(push)
(declare-const i Int) (declare-const j Int) (declare-const w Int)
(assert (and (<= 0 i) (< i j) (or (= w 1) (= w 2) (= w 4))))
(assert (not (<= (+ (byte i (* 8 w)) w) (byte j (* 8 w)))))
(check-sat) ; unsat
(pop)

; lemma addresses-stay-in-the-row: Each of n elements lies inside the bytes of n.
(push)
(declare-const i Int) (declare-const n Int) (declare-const bits Int)
(assert (and (<= 0 i) (< i n) (or (= bits 4) (= bits 8) (= bits 16) (= bits 32))))
(assert (not (< (byte i bits) (row-bytes n bits))))
(check-sat) ; unsat
(pop)

; lemma aiter-drops-an-odd-element: AITER's packed width is too small for some widths (facts/peers.md F4).
(push)
(declare-const w Int)
(assert (> w 0))
(assert (< (aiter-width w) w))
(check-sat) ; sat
(pop)

; lemma aiter-keeps-even-widths: AITER's packed width holds every even width.
(push)
(declare-const w Int)
(assert (and (> w 0) (= (mod w 2) 0)))
(assert (not (and (<= w (aiter-width w)) (= (mod (aiter-width w) 256) 0))))
(check-sat) ; unsat
(pop)
