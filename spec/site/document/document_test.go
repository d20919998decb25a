// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

func read(text string, more ...string) *Reader {
	fsys := fstest.MapFS{"site.yaml": {Data: []byte(text)}}
	for i := 0; i < len(more); i += 2 {
		fsys[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
	}
	return Read(&shape.Checker{Report: &report.Report{}}, nil, fsys, []string{"site.yaml"})
}

// Every form of input is told by what it holds, and ends in one tree.
func TestForms(t *testing.T) {
	for form, text := range map[string]string{
		"site":        "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nconf: {sysctl: {vm/swappiness: 1}}\n",
		"values":      "conf: {sysctl: {vm.swappiness: 1}}\n",
		"armadachart": "apiVersion: armada.airshipit.org/v1alpha1\nkind: ArmadaChart\nmetadata: {name: c}\nspec: {values: {conf: {sysctl: {vm.swappiness: 1}}}}\n",
		"armada":      "schema: armada/Chart/v1\nmetadata: {name: c}\ndata: {values: {conf: {sysctl: {vm.swappiness: 1}}}}\n",
	} {
		r := read(text)
		if r.Report.Err() != nil {
			t.Errorf("%s: %v", form, r.Report.Err())
			continue
		}
		if v := r.Tree.Get("conf").Get("sysctl").Get("vm.swappiness"); v == nil || v.Text != "1" {
			t.Errorf("%s: the key is not in its one spelling", form)
		}
		if r.Site != (form == "site") {
			t.Errorf("%s: a Site is %v", form, r.Site)
		}
	}
	for text, want := range map[string]string{
		"x: 1\n":                       "unknown kind of document",
		"sysctl: {vm.swappiness: 1}\n": "unknown kind of document",
		"3\n":                          "is not a configuration",
		"":                             "the file is empty",
	} {
		if err := read(text).Report.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Files are read beside the site, once, in conf and in overrides.
func TestInlineFiles(t *testing.T) {
	r := read("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nconf:\n  files: {/etc/a: {file: a.conf}}\n  overrides: {divingbell_files: {hosts: [{name: n, conf: {files: {/etc/a: {file: b.conf}}}}]}}\n",
		"a.conf", "base\n", "b.conf", "other\n")
	if r.Report.Err() != nil {
		t.Fatal(r.Report.Err())
	}
	conf := r.Tree.Get("conf")
	base := conf.Get("files").Get("/etc/a").Get("content")
	over := conf.Get("overrides").Get("divingbell_files").Get("hosts").List[0].Get("conf").Get("files").Get("/etc/a").Get("content")
	if base == nil || base.Text != "base\n" || over == nil || over.Text != "other\n" {
		t.Errorf("base %v, override %v", base, over)
	}
}

// Manifests, conf and overrides are made from the table of modules.
func TestKeysFollowTheTable(t *testing.T) {
	for _, m := range module.Conf() {
		c := &shape.Checker{Report: &report.Report{}}
		src := &report.Source{Name: "v.yaml", Data: []byte("conf: {overrides: {" + m.Stanza() + ": {hosts: [{name: a}]}}}\nmanifests: {" + m.Switch() + ": false}\n")}
		var v Values
		c.Decode(tree.Parse(src, src.Data, c.Report)[0], &v)
		var conf ConfDoc
		c.Decode(v.Conf.V, &conf)
		if c.Report.Err() != nil {
			t.Errorf("%s: %v", m.Name, c.Report.Err())
		}
		if !v.Manifests.Off(m) || conf.Overrides[m.Stanza()] == nil || len(conf.Overrides[m.Stanza()].Hosts) != 1 {
			t.Errorf("%s: off %v, overrides %v", m.Name, v.Manifests.Off(m), conf.Overrides)
		}
	}
}
