; Cutting [0, i) over ranks: every channel is held once, whichever of the split rules cuts.

; formula ceil-div of plan::split::floor: granules of a that cover n
(define-fun ceil-div ((n Int) (a Int)) Int
  (ite (= (mod n a) 0) (div n a) (+ (div n a) 1)))

; formula round-up of plan::arith::round_up: a padded size
(define-fun round-up ((n Int) (a Int)) Int (* (ceil-div n a) a))

(define-fun least ((a Int) (b Int)) Int (ite (<= a b) a b))

; formula start of plan::split::strided: first channel of rank r
(define-fun start ((r Int) (step Int) (i Int)) Int (least (* r step) i))

; formula len of plan::split::strided: channels of rank r
(define-fun len ((r Int) (step Int) (i Int)) Int (least step (- i (start r step i))))

; formula floor-step of plan::split::floor: stride of floor, ceil and rank-chunk
(define-fun floor-step ((i Int) (ranks Int)) Int (ceil-div i ranks))

; formula stride-step of plan::split::stride: stride and padded width of stride
(define-fun stride-step ((i Int) (ranks Int) (align Int)) Int (round-up (ceil-div i ranks) align))

; formula block-step of plan::split::ceil_block: stride of ceil-block
(define-fun block-step ((i Int) (ranks Int) (block Int)) Int
  (* (ceil-div (ceil-div i block) ranks) block))

; formula prepad-step of plan::split::prepad: stride and padded width of prepad
(define-fun prepad-step ((i Int) (ranks Int) (unit Int)) Int
  (div (round-up i (* unit ranks)) ranks))

(define-fun MAX () Int 18446744073709551615)

; lemma split-holds-every-channel: Where the ranks' strides reach i, channel x is held by rank x div step.
(push)
(declare-const i Int) (declare-const ranks Int) (declare-const step Int) (declare-const x Int)
(assert (and (> ranks 0) (> step 0) (<= i (* ranks step)) (<= 0 x) (< x i)))
(declare-const r Int)
(assert (= r (div x step)))
(assert (not (and (<= 0 r) (< r ranks)
                  (<= (start r step i) x) (< x (+ (start r step i) (len r step i))))))
(check-sat) ; unsat
(pop)

; lemma split-holds-no-channel-twice: Two ranks share no channel.
(push)
(declare-const i Int) (declare-const step Int) (declare-const x Int) (declare-const r Int) (declare-const s Int)
(assert (and (> step 0) (<= 0 i) (<= 0 r) (< r s)))
(assert (and (<= (start r step i) x) (< x (+ (start r step i) (len r step i)))))
(assert (and (<= (start s step i) x) (< x (+ (start s step i) (len s step i)))))
(check-sat) ; unsat
(pop)

; lemma split-ranges-join: Each range begins where the one before it ends, and ends inside [0, i).
(push)
(declare-const i Int) (declare-const step Int) (declare-const r Int)
(assert (and (> step 0) (<= 0 i) (<= 0 r)))
(assert (not (and (= (start (+ r 1) step i) (+ (start r step i) (len r step i)))
                  (<= 0 (len r step i) step)
                  (<= (+ (start r step i) (len r step i)) i))))
(check-sat) ; unsat
(pop)

; lemma split-saturation-is-harmless: A stride product held at u64::MAX begins a range where the exact one does.
(push)
(declare-const i Int) (declare-const step Int) (declare-const r Int)
(assert (and (<= 0 i MAX) (<= 0 step MAX) (<= 0 r MAX)))
(assert (not (= (least (least (* r step) MAX) i) (start r step i))))
(check-sat) ; unsat
(pop)

; lemma floor-strides-reach: The strides of floor, ceil and rank-chunk reach i.
(push)
(declare-const i Int) (declare-const ranks Int)
(assert (and (>= i 0) (> ranks 0)))
(assert (not (<= i (* ranks (floor-step i ranks)))))
(check-sat) ; unsat
(pop)

; lemma stride-strides-reach: The strides of stride reach i, and are aligned.
(push)
(declare-const i Int) (declare-const ranks Int) (declare-const align Int)
(assert (and (>= i 0) (> ranks 0) (> align 0)))
(assert (not (and (<= i (* ranks (stride-step i ranks align)))
                  (= (mod (stride-step i ranks align) align) 0))))
(check-sat) ; unsat
(pop)

; lemma block-strides-reach: The strides of ceil-block reach i, in whole blocks.
(push)
(declare-const i Int) (declare-const ranks Int) (declare-const block Int)
(assert (and (>= i 0) (> ranks 0) (> block 0)))
(assert (not (and (<= i (* ranks (block-step i ranks block)))
                  (= (mod (block-step i ranks block) block) 0))))
(check-sat) ; unsat
(pop)

; lemma prepad-strides-reach: The strides of prepad reach i, in whole units.
(push)
(declare-const i Int) (declare-const ranks Int) (declare-const unit Int)
(assert (and (>= i 0) (> ranks 0) (> unit 0)))
(declare-const k Int)
; The number of units over all ranks, by name: the product of three sizes is divided exactly.
(assert (= k (ceil-div i (* unit ranks))))
(assert (not (and (= (prepad-step i ranks unit) (* k unit))
                  (<= i (* ranks (* k unit))))))
(check-sat) ; unsat
(pop)

; lemma padding-then-cutting-is-cutting-then-padding: Where ranks divide i, padding each share costs what padding the whole axis to ranks * a does.
(push)
(declare-const i Int) (declare-const ranks Int) (declare-const a Int) (declare-const share Int)
(assert (and (>= share 0) (> ranks 0) (> a 0) (= i (* ranks share))))
(assert (not (= (round-up i (* a ranks)) (* ranks (round-up share a)))))
(check-sat) ; unsat
(pop)

; lemma cutting-a-padded-axis-leaves-ranks-short: Padding the axis alone, to a and not to ranks * a, leaves a share that is no whole number of granules.
(push)
(declare-const i Int) (declare-const ranks Int) (declare-const a Int)
(assert (and (> i 0) (> ranks 1) (> a 1)))
(assert (= (mod (round-up i a) ranks) 0))
(assert (not (= (mod (div (round-up i a) ranks) a) 0)))
(check-sat) ; sat
(pop)
