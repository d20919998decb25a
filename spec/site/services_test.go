// SPDX-License-Identifier: Apache-2.0

package site

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
)

const serving = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: mon, labels: {role: monitoring}}, {name: web}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: monitoring}
spec: {match: {labels: {role: monitoring}}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: prometheus}
spec:
  nodes: [monitoring]
  git: {url: "https://git.example.org/conf.git", branch: main}
  user: prometheus
  package: prometheus
  action: reload
  directories: [{from: z/rules.yml, to: /srv/rules.yml, file: true}, {from: prometheus/etc/, to: /etc/prometheus/}]
`

const (
	aCommit = "0123456789012345678901234567890123456789"
	aDigest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

const servingLock = `{"apiVersion": "caisson.dev/v1alpha1", "kind": "ServicesLock", "services": {"prometheus": {
  "url": "https://git.example.org/conf.git", "ref": "branch main", "from": ["prometheus/etc", "z/rules.yml"],
  "commit": "` + aCommit + `", "date": "2026-11-01T00:00:00Z", "image": {"digest": "` + aDigest + `", "size": 4096}}}}`

func parseServing(lock string) (*Site, *report.Report) {
	fsys := fstest.MapFS{"conf/site.yaml": {Data: []byte(serving)}}
	if lock != "" {
		fsys["conf/services.lock"] = &fstest.MapFile{Data: []byte(lock)}
	}
	return Parse(fsys, "conf/site.yaml")
}

// TestServiceReachesItsNodes compiles a service for the nodes of its set, at the
// commit and with the image of the lock.
func TestServiceReachesItsNodes(t *testing.T) {
	s, r := parseServing(servingLock)
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	if o, err := s.Overlay("web", ""); err != nil || o.Services != nil {
		t.Errorf("web: %+v, %v", o, err)
	}
	o, err := s.Overlay("mon", "")
	if err != nil || len(o.Services) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if len(o.NeedsLayer) != 1 || o.NeedsLayer[0] != (spec.NeedsLayer{Item: "apt", Key: "prometheus", To: "installed"}) {
		t.Errorf("a host without a layer is to report %+v", o.NeedsLayer)
	}
	got, err := spec.Encode(o.Services[0])
	if want := `{"name":"prometheus","unit":"prometheus.service","commit":"` + aCommit + `","image":{"digest":"` + aDigest + `","size":4096},` +
		`"user":"prometheus","package":"prometheus","action":"reload","directories":[{"from":"prometheus/etc","to":"/etc/prometheus"},{"from":"z/rules.yml","to":"/srv/rules.yml","file":true}]}`; err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if _, err := s.Compile("mon", "", ""); err != nil {
		t.Error(err)
	}
}

// TestServiceNeedsItsLock compiles no overlay whose services have no commit, and reads
// all else all the same.
func TestServiceNeedsItsLock(t *testing.T) {
	for what, lock := range map[string]string{
		"is not in":  "",
		"repository": strings.Replace(servingLock, "git.example.org", "git.example.com", 1), "directories": strings.Replace(servingLock, `"prometheus/etc", `, "", 1),
		"branch old": strings.Replace(servingLock, "branch main", "branch old", 1),
	} {
		s, r := parseServing(lock)
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		if _, err := s.Compile("mon", "", ""); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := s.Compile("web", "", ""); err != nil {
			t.Errorf("%s: a node without the service: %v", what, err)
		}
		if o, err := s.Overlay("mon", ""); err != nil || o.Services[0].Commit != "" {
			t.Errorf("%s: %+v, %v", what, o, err)
		}
	}
}

// TestServicesLockIsRead strictly.
func TestServicesLockIsRead(t *testing.T) {
	for what, lock := range map[string]string{
		"cut": servingLock[:50], "kind": strings.Replace(servingLock, "ServicesLock", "LayerLock", 1), "unknown key": strings.Replace(servingLock, `"date"`, `"dated"`, 1),
		"commit": strings.Replace(servingLock, aCommit, "main", 1), "image": strings.Replace(servingLock, aDigest, "latest", 1), "more": servingLock + "{}",
	} {
		if _, r := parseServing(lock); r.Err() == nil || !strings.Contains(r.Err().Error(), "services.lock") {
			t.Errorf("%s: %v", what, r.Err())
		}
	}
}
