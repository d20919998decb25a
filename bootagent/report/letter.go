// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Letter is what a node sends to a service, or puts into a registry.
type Letter struct {
	URL    string
	Put    *Place // instead of an address
	Header map[string]string
	Body   []byte
	Token  bool // it goes to the service that may ask for this node's token
}

// Place is where a node's last report is in a registry.
type Place struct {
	Registry string // host[:port]/prefix
	Node     string // its tag
}

// Path is where a service takes reports, below its address.
const Path = "/v1/report"

// HintPath is where a service takes hints of loaders.
const HintPath = "/v1/hint"

// SignSlot signs a request for a slot with the key beside a directory of reports, so
// that a service knows who asks; nil where there is no key yet.
func SignSlot(dir string, r spec.SlotRequest) ([]byte, error) {
	key, err := readKey(keyFile(dir))
	if key == nil || err != nil {
		return nil, err
	}
	r.APIVersion, r.Kind, r.Key = spec.APIVersion, spec.KindSlotRequest, sign.VerifierOf(key).ID()
	data, err := spec.Encode(r)
	if err != nil {
		return nil, fmt.Errorf("sign a request for a slot: %w", err)
	}
	return sign.SignReport(key, data)
}
