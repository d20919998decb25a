// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/picture"
	"github.com/caisson-os/caisson/spec"
)

// What is stated is what the exit code says, whatever that is, and has the reason.
func TestStatement(t *testing.T) {
	end := func(layer, value string) *sandbox.Kept {
		return &sandbox.Kept{Overlay: &spec.Overlay{Core: spec.Core{Fleet: "metal-a", Node: "n", Layer: layer}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: value}}}}}
	}
	from, to := end("sha256:a", "1"), end("sha256:b", "2")
	left := []picture.Difference{{Kind: "file", Key: "/root/left"}, {Kind: "file", Key: "/root/too"}}
	now := time.Unix(1800000000, 0)
	for want, a := range map[[2]string]*Answer{
		{evidence.Passed, ""}:                                                       {Said: spec.ClassCold, Happened: spec.ClassReboot, Passed: true},
		{evidence.Failed, "gate greeted"}:                                           {Said: spec.ClassLive, Reason: "gate greeted"},
		{evidence.Differs, "2 did not come back: file /root/left"}:                  {Said: spec.ClassLive, Happened: spec.ClassLive, Passed: true, Left: left},
		{evidence.Differs, "class live said, reboot happened; 0 did not come back"}: {Said: spec.ClassLive, Happened: spec.ClassReboot, Passed: true},
	} {
		r, err := a.Statement(from, to, evidence.Machine{Arch: "amd64"}, "7", now)
		if err != nil || r.Result != want[0] || r.Reason != want[1] {
			t.Errorf("%+v: %v", r, err)
		}
		if r.Fleet != "metal-a" || r.From.Layer != "sha256:a" || r.To.Layer != "sha256:b" || r.From.Settings == r.To.Settings || r.Version != "7" || r.Machine.Arch != "amd64" || !r.IssuedAt.Equal(now) {
			t.Errorf("%+v", r)
		}
	}
}
