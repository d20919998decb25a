// SPDX-License-Identifier: Apache-2.0

package site

import (
	"strings"
	"testing"
)

// An NFS server of ours has a root for version 4 only where the site names one.
func TestExportsHaveARoot(t *testing.T) {
	const layer = "layer:\n  base: {debian: {suite: trixie}}\n  kernel: {package: linux-image-amd64}\n"
	for _, row := range []struct {
		layer, files string
		warned       bool
	}{
		{layer, `/etc/exports: {content: "/srv 10.0.0.0/8(rw)\n"}`, true},
		{layer, `/etc/exports.d/a.exports: {content: "# of a\n\"/srv/a b\" *(rw,fsid=01)\n"}`, true},
		{layer, `/etc/exports: {content: "/srv 10.0.0.0/8(rw,fsid=0)\n"}`, false},
		{layer, `/etc/exports: {content: "/srv 10.0.0.0/8(fsid=root,rw)\n"}`, false},
		{layer, `/etc/exports: {content: "/srv/a *(rw)\n"}, /etc/exports.d/root.exports: {content: "/srv *(ro,fsid=0)\n"}`, false},
		{layer, `/etc/exports: {content: "/srv *(rw)\n"}, /etc/nfs.conf.d/old.conf: {content: "[nfsd]\nvers4=n\n"}`, false},
		{layer, `/etc/exports: {content: "# none\n"}`, false},
		{layer, `/etc/other: {content: "/srv 10.0.0.0/8(rw)\n"}`, false},
		{"", `/etc/exports: {content: "/srv 10.0.0.0/8(rw)\n"}`, false}, // a host whose root is not ours
	} {
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\n" + row.layer + "nodes: [{name: a}]\nconf:\n  files: {" + row.files + "}\n"
		s, r := Parse(files("site.yaml", text), "site.yaml")
		if s == nil {
			t.Fatalf("%s: %v", row.files, r.Err())
		}
		said := false
		for _, p := range r.Problems {
			said = said || strings.Contains(p.Message, "NFS version 4")
		}
		if said != row.warned {
			t.Errorf("%s: warned %t, want %t: %v", row.files, said, row.warned, r.Problems)
		}
	}
}
