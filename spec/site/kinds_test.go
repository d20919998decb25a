// SPDX-License-Identifier: Apache-2.0

package site

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/module"
)

// kinds is one value of each kind of items.
var kinds = map[string]string{
	"swaps":   "{a: {mnt_tgt: none, device: LABEL=swap, type: swap}}",
	"mounts":  "{a: {mnt_tgt: /srv/a, device: tmpfs, type: tmpfs}}",
	"limits":  "{a: {domain: '*', type: hard, item: core, value: 0}}",
	"sysctl":  "{vm.swappiness: 1}",
	"ethtool": "{eth0: {tso: off}}",
	"perm":    "{paths: [{path: /srv/a, permissions: 0640}]}",
	"files":   "{/etc/motd: {content: hello}}",
	"modules": "{load: [nf_conntrack]}",
	"units":   "{ssh.service: {state: disabled}}",
	"nics":    "{eth0: {ring: {rx: 512}}}",
	"sysfs":   "{/sys/kernel/mm/transparent_hugepage/enabled: never}",
	"exec":    "{a: {data: '#!/bin/sh', rerun_policy: never}}",

	"passwords": "{users: [{user_name: ann, user_crypt_passwd: {secret: ann}}]}",
}

// stanzaOf is where a kind is written: swap space is a mount of a type of its own, and
// passwords are those of users.
func stanzaOf(kind string) string {
	for _, m := range module.Conf() {
		if m.Writes(kind) {
			return m.Name
		}
	}
	return kind
}

// Two nodes that differ in one kind alone are sent different overlays, each with
// what it asks for: the encoding that nodes share must not be another node's.
func TestEveryKindReachesItsNode(t *testing.T) {
	fields := reflect.TypeFor[spec.Items]()
	for i := range fields.NumField() {
		kind, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		value, ok := kinds[kind]
		if !ok {
			t.Errorf("no value of kind %s is tried", kind)
			continue
		}
		stanza := stanzaOf(kind)
		s := mustParse(t, head+"secrets: {ann: {command: [cat, ann]}}\nnodes: [{name: a}, {name: b}, {name: c}]\nconf:\n  overrides:\n    divingbell_"+stanza+":\n      hosts:\n      - {name: b, conf: {"+stanza+": "+value+"}}\n"+layer)
		got := map[string]spec.Overlay{}
		for _, n := range []string{"a", "b", "c", "b", "a"} { // twice: from the cache
			data, err := s.Compile(n, "", "")
			if err != nil {
				t.Fatal(err)
			}
			var o spec.Overlay
			if err := spec.Decode(data, &o); err != nil {
				t.Fatal(err)
			}
			if old, ok := got[n]; ok && !reflect.DeepEqual(old, o) {
				t.Errorf("%s: node %s is sent two overlays", kind, n)
			}
			got[n] = o
		}
		for n, o := range got {
			if set := !reflect.ValueOf(o.Items).Field(i).IsZero(); set != (n == "b") {
				t.Errorf("%s: node %s has it: %v", kind, n, set)
			}
		}
	}
}

// Every module is whole: what one needs of another table, its own row says.
func TestEveryModuleIsWhole(t *testing.T) {
	fields := reflect.TypeFor[spec.Items]()
	for i := range fields.NumField() {
		kind, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		if !slices.ContainsFunc(module.Conf(), func(m *module.Module) bool { return m.Name == stanzaOf(kind) && m.Lines != nil }) {
			t.Errorf("no module prints items of kind %s", kind)
		}
	}
	for _, m := range module.Conf() {
		if m.Doc == nil || m.About == "" || m.Compile == nil {
			t.Errorf("module %s lacks its type, its line of help or its compiler", m.Name)
		}
		if m.Lines == nil && m.Baked == nil {
			t.Errorf("module %s has neither items nor a part of a recipe", m.Name)
		}
		if m.Image != (m.Baked != nil) {
			t.Errorf("module %s: acts in a layer %v, has a part of a recipe %v", m.Name, m.Image, m.Baked != nil)
		}
	}
}
