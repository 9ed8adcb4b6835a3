; Rounding up to a granule, as every padded size is found.
;
; Sizes are integers without an upper limit, so what holds here holds for all sizes of 64 bits;
; the lemma on overflow says when a result leaves them. `MAX` is u64::MAX.

; formula ceil-div of plan::arith::round_up: how many granules of a cover n
(define-fun ceil-div ((n Int) (a Int)) Int
  (ite (= (mod n a) 0) (div n a) (+ (div n a) 1)))

; formula round-up of plan::arith::round_up: the padded size
(define-fun round-up ((n Int) (a Int)) Int
  (* (ceil-div n a) a))

(define-fun MAX () Int 18446744073709551615)

; lemma round-up-is-a-multiple: A size rounded up is a whole number of granules.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (> a 0)))
(assert (not (= (mod (round-up n a) a) 0)))
(check-sat) ; unsat
(pop)

; lemma round-up-holds-the-size: A size rounded up is no smaller, and less than one granule larger.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (> a 0)))
(assert (not (and (<= n (round-up n a)) (< (round-up n a) (+ n a)))))
(check-sat) ; unsat
(pop)

; lemma round-up-is-minimal: Every multiple of the granule that holds the size is at least the size rounded up.
(push)
(declare-const n Int) (declare-const a Int) (declare-const k Int)
(assert (and (>= n 0) (> a 0)))
(assert (>= (* k a) n))
(assert (not (>= (* k a) (round-up n a))))
(check-sat) ; unsat
(pop)

; lemma round-up-is-monotone: A larger size never rounds up to less.
(push)
(declare-const n Int) (declare-const m Int) (declare-const a Int)
(assert (and (>= n 0) (> a 0) (<= n m)))
(assert (not (<= (round-up n a) (round-up m a))))
(check-sat) ; unsat
(pop)

; lemma round-up-is-idempotent: A padded size is not padded again.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (> a 0)))
(assert (not (= (round-up (round-up n a) a) (round-up n a))))
(check-sat) ; unsat
(pop)

; lemma round-up-overflows-exactly: A padded size leaves 64 bits exactly when the rest of the last granule does.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (<= n MAX) (> a 0) (<= a MAX)))
(assert (not (= (> (round-up n a) MAX)
                (and (> (mod n a) 0) (> (- a (mod n a)) (- MAX n))))))
(check-sat) ; unsat
(pop)

; lemma ceil-div-fits: The number of granules never leaves 64 bits, so that only the product needs a check.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (<= n MAX) (> a 0)))
(assert (not (<= (ceil-div n a) MAX)))
(check-sat) ; unsat
(pop)

; lemma adding-first-overflows: Adding a - 1 before dividing, as is often written, leaves 64 bits for sizes that need no padding.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (<= n MAX) (> a 0) (<= a MAX)))
(assert (= (round-up n a) n))
(assert (> (+ n (- a 1)) MAX))
(check-sat) ; sat
(pop)
