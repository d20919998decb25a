// SPDX-License-Identifier: Apache-2.0

package post

import (
	"context"
	"encoding/base64"
	"net/url"
	"time"

	"github.com/caisson-os/caisson/bootagent/sense/slot"
	"github.com/caisson-os/caisson/bootagent/tell/report"
	"github.com/caisson-os/caisson/spec"
)

// ProofHeader has a signed [spec.SlotRequest] in base64.
const ProofHeader = "Caisson-Proof"

// Slots takes turns as the node of an overlay. To the service that it reports to, the
// node proves who asks; any other is asked as FleetLock has it. The boot that it names is
// that of its reports, and stays over a soft-reboot, as the key does.
func (p *Post) Slots(o *spec.Overlay) slot.Holder {
	return slot.Holder{Node: o.Node, Ask: func(ctx context.Context, server, act, group string, body []byte) error {
		l := report.Letter{URL: server + "/v1/" + act, Header: map[string]string{"Fleet-Lock-Protocol": "true"}, Body: body}
		if o.Agent != nil && o.Agent.Report != nil && sameOrigin(o.Agent.Report.URL, server) {
			if err := p.mayReport(); err != nil {
				return err
			}
			proof, err := report.SignSlot(p.ReportDir(), spec.SlotRequest{Fleet: o.Fleet, Node: o.Node, Group: group, Act: act, BootID: p.Boot, Time: time.Now().UTC()})
			if err != nil {
				return err
			}
			if l.Token = true; proof != nil {
				l.Header[ProofHeader] = base64.StdEncoding.EncodeToString(proof)
			}
		}
		return p.By(ctx, l)
	}}
}

func sameOrigin(a, b string) bool {
	x, err := url.Parse(a)
	if err != nil {
		return false
	}
	y, err := url.Parse(b)
	return err == nil && x.Scheme == y.Scheme && x.Host == y.Host
}
