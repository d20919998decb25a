// SPDX-License-Identifier: Apache-2.0

// Package kube holds the import rules of this module. The other direction, that nothing of
// caisson knows Kubernetes, is held in caisson's own test/deptest.
package kube

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/deptest"
)

// doors are the packages of caisson that this module may import, each with what for. None is
// internal but those that bound strangers: the others are caisson's to change without a thought of
// who else uses them.
var doors = map[string]string{
	"internal/httpserver": "strangers reach the webhook as they do what caisson serves: one set of limits",
	"fleet/analysis":      "the Prometheus that an installation names is opened as by 'caisson rollout run'",
	"fleet/content":       "files that services bring are read as 'caisson publish' reads them",
	"fleet/policy":        "whose keys count is read beside caisson-kube",
	"fleet/preview":       "a plan is the one of 'caisson plan'",
	"fleet/publish":       "publishing is that of 'caisson publish'",
	"fleet/published":     "what is published is read and checked as everywhere",
	"fleet/report":        "what nodes signed is judged as elsewhere",
	"fleet/rollout":       "a rollout is driven as 'caisson rollout run' does",
	"fleet/view":          "nodes have the conditions that 'caisson fleet status' gives them",
	"fleet/seal":          "secrets are sealed as 'caisson publish' does",
	"oci":                 "an approval of the old kind names a digest alone",
	"oci/keychain":        "credentials of registries are found as elsewhere",
	"oci/keys":            "keys and programs that sign are opened as elsewhere",
	"oci/pull":            "how a registry is reached",
	"oci/registry":        "a publisher's registry",
	"builder/release":     "a rollout names its layers by a digest",
	"spec":                "the documents that a fleet's index has",
	"spec/site":           "what objects mean as a whole",
	"spec/site/cluster":   "objects are read there, as files are",
	"spec/site/plan":      "a plan's classes are counted",
	"spec/site/report":    "problems have severities",
}

const own = deptest.Module + "/kube"

func TestDoors(t *testing.T) {
	used := map[string]bool{}
	for _, p := range deptest.List(t, "./...") {
		name, ours := strings.CutPrefix(p.ImportPath, own)
		if !ours || name == "/test/kubetest" {
			continue
		}
		for _, path := range p.Imports {
			door, caisson := strings.CutPrefix(path, deptest.Module+"/")
			switch {
			case !caisson || strings.HasPrefix(path, own+"/"):
			case doors[door] == "":
				t.Errorf("%s imports %s, which is not a door", p.ImportPath, door)
			default:
				used[door] = true
			}
		}
		if slices.Contains(p.Deps, own+"/test/kubetest") {
			t.Errorf("%s links what is for tests", p.ImportPath)
		}
	}
	for door := range doors {
		if !used[door] {
			t.Errorf("nobody goes through the door %s", door)
		}
		if strings.Contains("/"+door+"/", "/internal/") && door != "internal/httpserver" {
			t.Errorf("the door %s leads into what is caisson's own", door)
		}
	}
}
