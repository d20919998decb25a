// SPDX-License-Identifier: Apache-2.0

package site

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// Texts come once for nodes that share them, with their places, and without secrets.
func TestTextsOn(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: n1}, {name: n2}, {name: n3}]
secrets:
  rules: {file: rules.age}
conf:
  files:
    /etc/motd: {content: hello}
    /etc/sudoers.d/s: {secret: rules}
  units:
    a.service:
      content: "[Service]\n"
      dropIns: {x: "[Unit]\n"}
  overrides:
    divingbell_files:
      hosts:
      - name: n3
        conf: {files: {/etc/motd: {content: other}}}
`
	s, r := Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}, "rules.age": {Data: []byte("age-encryption.org/v1\n")}}, "site.yaml")
	if s == nil {
		t.Fatal(r.Err())
	}
	units := []Text{{"/etc/systemd/system/a.service", "[Service]\n", "site.yaml:12:5"}, {"/etc/systemd/system/a.service.d/x.conf", "[Unit]\n", "site.yaml:12:5"}}
	want := [][]Text{append([]Text{{"/etc/motd", "hello", "site.yaml:9:5"}}, units...), append([]Text{{"/etc/motd", "other", "site.yaml:19:24"}}, units...)}
	if diff := cmp.Diff(want, s.TextsOn([]string{"n1", "n2", "n3"})); diff != "" {
		t.Error(diff)
	}
}
