// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/spec"
)

// A document has one encoding; whatever else means the same is refused.
func ExampleDecode() {
	data, err := spec.Encode(spec.Floor{Epoch: 1, Generation: 7})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(data))

	var floor spec.Floor
	err = spec.Decode([]byte(`{"epoch": 1, "generation": 7}`), &floor)
	fmt.Println(errors.Is(err, spec.ErrNotCanonical))
	// Output:
	// {"epoch":1,"generation":7}
	// true
}

// A reader leaves out what a later release added, and learns its name.
func ExampleDecodeKnown() {
	later := []byte(`{"apiVersion":"caisson.dev/v1alpha1","kind":"Fleet","fleet":"metal-a","minimum":{"epoch":0,"generation":3},"motto":"onwards"}`)
	var fleet spec.Fleet
	unknown, err := spec.DecodeKnown(later, &fleet)
	fmt.Println(fleet.Minimum.Generation, unknown, err)
	// Output: 3 [motto] <nil>
}

// An overlay says which features it uses; a layer's agent says which it knows.
func ExampleMissing() {
	o := spec.Overlay{Core: spec.Core{Needs: []string{"secrets"}}}
	layer := spec.Layer{Features: []string{"network-wifi"}}
	fmt.Println(spec.Missing(o.Needs, layer.Features))
	// Output: [secrets]
}
