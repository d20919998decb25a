// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/module"
)

// linkFeatures are systemd.link(5)'s names of offload features and ethtool(8)'s.
var linkFeatures = map[string]string{
	"ReceiveChecksumOffload":               "rx-checksumming",
	"TransmitChecksumOffload":              "tx-checksumming",
	"TCPSegmentationOffload":               "tcp-segmentation-offload",
	"TCP6SegmentationOffload":              "tx-tcp6-segmentation",
	"GenericSegmentationOffload":           "generic-segmentation-offload",
	"PartialGenericSegmentationOffload":    "tx-gso-partial",
	"GenericReceiveOffload":                "generic-receive-offload",
	"GenericReceiveOffloadHardware":        "rx-gro-hw",
	"LargeReceiveOffload":                  "large-receive-offload",
	"ReceiveVLANCTAGHardwareAcceleration":  "rx-vlan-offload",
	"TransmitVLANCTAGHardwareAcceleration": "tx-vlan-offload",
	"ReceiveVLANCTAGFilter":                "rx-vlan-filter",
	"TransmitVLANSTAGHardwareAcceleration": "tx-vlan-stag-hw-insert",
	"NTupleFilter":                         "ntuple-filters",
}

// readLink reads systemd.link(5): the features of a link that is named.
func readLink(r *reading) {
	var settings []setting
	name, several := "", false
	for _, sec := range r.sections() {
		for _, s := range sec.lines {
			switch {
			case sec.name == "Match" && s.key == "OriginalName" && name == "":
				name = s.value
				several = strings.ContainsAny(name, "*?[ !")
			case sec.name == "Match" && s.key == "OriginalName":
			case sec.name == "Match":
				r.miss(s.n, s.line, "a site names interfaces, it does not match them")
			case sec.name == "Link" && s.key == "Name":
				name, several = s.value, false
				r.miss(s.n, s.line, "names are not given by a site; the features are taken under this name")
			case sec.name == "Link":
				settings = append(settings, s)
			default:
				r.miss(s.n, s.line, "section ["+sec.name+"] has no counterpart")
			}
		}
	}
	for _, s := range settings {
		feature := linkFeatures[s.key]
		on := strings.ToLower(s.value)
		switch {
		case feature == "":
			r.miss(s.n, s.line, "it is not an offload feature")
		case name == "" || several:
			r.miss(s.n, s.line, "the file does not match one interface by name: [Match] OriginalName= or [Link] Name=")
		case on == "yes" || on == "true" || on == "on" || on == "1":
			r.feature(s.n, s.line, name, feature, "on")
		case on == "no" || on == "false" || on == "off" || on == "0":
			r.feature(s.n, s.line, name, feature, "off")
		default:
			r.miss(s.n, s.line, "its value is neither yes nor no")
		}
	}
}

// readEthtool reads what ethtool -k printed, or lines of ethtool -K.
func readEthtool(r *reading) {
	nic := ""
	r.lines("#", func(n int, line string) {
		if rest, ok := strings.CutPrefix(line, "Features for "); ok {
			nic = strings.TrimSuffix(rest, ":")
			return
		}
		words := strings.Fields(line)
		if len(words) > 2 && strings.HasSuffix(words[0], "ethtool") {
			r.ethtoolCommand(n, line, words)
			return
		}
		feature, state, ok := strings.Cut(line, ": ")
		switch {
		case !ok || nic == "":
			r.miss(n, line, "it is neither ethtool -k's nor ethtool -K's")
		case strings.Contains(state, "[fixed]"):
			r.miss(n, line, "the driver does not let it be changed")
		case strings.Contains(state, "[requested"):
			r.miss(n, line, "it could not be set as requested, so what is meant is not clear")
		default:
			r.feature(n, line, nic, feature, strings.TrimSpace(state))
		}
	})
}

func (r *reading) ethtoolCommand(n int, line string, words []string) {
	if words[1] != "-K" && words[1] != "--features" && words[1] != "--offload" {
		r.miss(n, line, "only offload features (-K) are taken")
		return
	}
	pairs := words[3:]
	if len(pairs) == 0 || len(pairs)%2 != 0 {
		r.miss(n, line, "features and values do not pair")
		return
	}
	for i := 0; i < len(pairs); i += 2 {
		r.feature(n, line, words[2], pairs[i], pairs[i+1])
	}
}

func (r *reading) feature(n int, line, nic, feature, state string) {
	feature = module.FeatureName(feature)
	r.take(n, line, "ethtool", nic+" "+feature, []string{nic, feature}, state)
}
