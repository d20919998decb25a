// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// A node accepts what its fleet's key signed for it, and nothing older again.
func ExampleRules_Accept() {
	key, err := sign.Generate()
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC)
	publish := func(generation uint64) trust.Candidate {
		o := spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: "superhost"}}
		doc, err := spec.Encode(o)
		if err != nil {
			panic(err)
		}
		bundle, err := sign.SignOverlay(key, oci.Digest(doc), sign.Predicate{
			Fleet: "metal-a", Node: "superhost", Generation: generation, IssuedAt: now, Expires: now.Add(time.Hour)})
		if err != nil {
			panic(err)
		}
		return trust.Candidate{Document: doc, Bundles: [][]byte{bundle}}
	}
	bootstrap := spec.Bootstrap{Fleet: "metal-a", Keys: []string{string(sign.VerifierOf(key).PEM())}, Threshold: 1}
	me := trust.Identity{Node: "superhost"}
	clock := trust.Clock{RTC: now}

	var floor spec.Floor
	for _, generation := range []uint64{7, 6} {
		a, err := trust.All().Accept(publish(generation), bootstrap, me, clock, trust.Known{Floor: floor})
		if err != nil {
			fmt.Println(generation, refusal.Of(err))
			continue
		}
		floor = a.Floor // on disk, before anything acts
		fmt.Println(generation, "accepted")
	}
	// Output:
	// 7 accepted
	// 6 rollback
}
