// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"fmt"
	"log"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
)

// An operator signs what a node will be; the node wants two signatures by keys
// that it knows.
func Example() {
	overlay := oci.Digest([]byte(`{"kind":"Overlay"}`))
	predicate := sign.Predicate{
		Fleet: "metal-a", Node: "superhost", Epoch: 1, Generation: 7,
		IssuedAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Expires: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}
	var bundles [][]byte
	var trusted []sign.Verifier
	for range 2 {
		key, err := sign.Generate()
		if err != nil {
			log.Fatal(err)
		}
		bundle, err := sign.SignOverlay(key, overlay, predicate)
		if err != nil {
			log.Fatal(err)
		}
		bundles, trusted = append(bundles, bundle), append(trusted, sign.VerifierOf(key))
	}
	verified, err := sign.VerifyOverlay(bundles, trusted, 2, overlay)
	fmt.Println(verified.Predicate.Node, verified.Predicate.Generation, len(verified.Keys), err)
	_, err = sign.VerifyOverlay(bundles[:1], trusted, 2, overlay)
	fmt.Println(err != nil)
	// Output:
	// superhost 7 2 <nil>
	// true
}
