// SPDX-License-Identifier: Apache-2.0

package culprit

import "github.com/caisson-os/caisson/spec"

func overlay(change func(*spec.Overlay)) *spec.Overlay {
	o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "f", Node: "n", Layer: "sha256:1", Variant: "default", KernelArgs: []string{"quiet"}},
		Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}, {Key: "vm/zone", Value: "1"}},
			Files: []spec.File{{Path: "/etc/motd", Content: "a"}}, Modules: &spec.Modules{Load: []string{"loop"}}}}
	if change != nil {
		change(o)
	}
	o.SetNeeds()
	return o
}

// worse differs from it in each sort of part.
func worse(o *spec.Overlay) {
	o.Layer, o.Variant, o.KernelArgs = "sha256:2", "other", []string{"quiet", "mitigations=off"}
	o.Items.Sysctl = []spec.Sysctl{{Key: "kernel/x", Value: "1"}, {Key: "vm/swappiness", Value: "90"}}
	o.Items.Files[0].Content = "b"
	o.Items.Units = []spec.Unit{{Name: "a.service", State: "masked"}}
	o.Items.Modules = nil
	o.Agent = &spec.Agent{Poll: 60}
}
