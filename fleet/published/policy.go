// SPDX-License-Identifier: Apache-2.0

package published

import (
	"time"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

// Policy holds the trust section of a site. Without a site the verified fleet:index
// completes it.
type Policy struct {
	Site      bool // it is a site's, all roles are known
	Fleet     string
	Operator  []sign.Verifier
	Release   []sign.Verifier
	Threshold int
	Lifetime  time.Duration
	Epoch     []sign.Verifier // who may raise the epoch; not in the index

	Root          []sign.Verifier // who says which keys count; not in the index
	RootThreshold int
	Attestation   []sign.Verifier
	Rescue        []sign.Verifier // who may let somebody into a node; not in the index
	Chain         *chain.Chain    // versions of the keys as the site has them; nil: the keys above count
	Beside        bool            // no site document names keys, so none can differ from those of the newest version

	Former []Policy // whose fleet:current is taken, too, while a rotation that was cut is taken up, the newest first
}

// bootstrap is what a node knows by whom the policy is obeyed.
func (p Policy) bootstrap() spec.Bootstrap {
	return spec.Bootstrap{Fleet: p.Fleet, Keys: sign.PEMs(p.Operator), Threshold: p.Threshold, EpochKeys: sign.PEMs(p.Epoch)}
}
