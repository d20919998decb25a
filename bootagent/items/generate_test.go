// SPDX-License-Identifier: Apache-2.0

package items

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// setting is one entry of a site's conf, as its author writes it.
type setting struct {
	kind, conf string
}

// places of a generated setting: what a word in braces stands for, one setting for each. Most of
// them exist only if another setting makes them.
var places = map[string][]string{
	"{dir}":    {"/srv/d", "/srv/d/in", "/srv/made"},
	"{path}":   {"/srv/d", "/srv/d/in", "/srv/file", "/srv/made", "/srv/made/f", "/etc/app/conf"},
	"{user}":   {"root", "ops"},
	"{swap}":   {"/srv/disk/swap", "/srv/disk/made", "/srv/d/swap"},
	"{nic}":    {"cs0", "new0"},
	"{etc}":    {"/etc/app/conf", "/etc/systemd/system/own.service", "/etc/security/limits.d/x"},
	"{module}": {"cs_one", "cs_two"},
}

// veth is a command that makes an interface with four queues each way.
func veth(name string) string {
	return "ip link add " + name + " numrxqueues 4 numtxqueues 4 type veth peer name " + name + "p numrxqueues 4 numtxqueues 4"
}

// forms of the settings of each kind; of one without any, its first valid row of rules is taken.
var forms = map[string][]string{
	"mounts": {
		`{"{id}": {"mnt_tgt": "{dir}", "device": "tmpfs", "type": "tmpfs", "options": "size=1m"}}`,
		`{"{id}": {"mnt_tgt": "{dir}", "device": "tmpfs", "type": "tmpfs", "options": "size=2m,uid=ops"}}`,
		`{"{id}": {"mnt_tgt": "/srv/b", "device": "{dir}", "type": "none", "options": "bind"}}`,
		`{"{id}": {"mnt_tgt": "{dir}", "device": "/srv/b", "type": "none", "options": "bind,ro"}}`,
		`{"{id}": {"mnt_tgt": "/etc/app/conf", "device": "/srv/file", "type": "none", "options": "bind"}}`,
	},
	"swaps": {
		`{"{id}": {"mnt_tgt": "none", "device": "{swap}", "type": "swap"}}`,
		`{"{id}": {"mnt_tgt": "none", "device": "{swap}", "type": "swap", "options": "pri=5"}}`,
	},
	"limits": {
		`{"one": {"domain": "{user}", "type": "hard", "item": "core", "value": 0}}`,
		`{"two": {"domain": "{user}", "type": "hard", "item": "nofile", "value": 2000000}}`,
	},
	"sysctl": {
		`{"net.ipv4.ip_forward": 1}`, `{"net.ipv4.conf.all.forwarding": 0}`, `{"net/ipv4/conf/{nic}/forwarding": 0}`,
		`{"net/ipv4/conf/{nic}/rp_filter": 2}`, `{"fs.nr_open": 3000000}`,
	},
	"ethtool": {`{"{nic}": {"tso": "off"}}`, `{"{nic}": {"sg": "off"}}`, `{"{nic}": {"gro": "off"}}`},
	"nics": {
		`{"{nic}": {"channels": {"rx": 1}}}`, `{"{nic}": {"features": {"tso": "off"}}}`,
		`{"all": {"match": {"driver": "veth"}, "channels": {"tx": 2}}}`,
	},
	"sysfs": {
		`{"/sys/class/net/{nic}/tx_queue_len": 99}`, `{"/sys/class/net/{nic}/queues/rx-3/rps_cpus": 1}`, `{"/sys/class/net/{nic}/ifalias": "x"}`,
	},
	"modules": {
		`{"blacklist": ["{module}"]}`, `{"parameters": {"{module}": {"n": 1}}}`, `{"load": ["{module}"]}`,
	},
	"files": {
		`{"{etc}": {"content": "[Service]\nExecStart=/bin/true\n"}}`, `{"{etc}": {"content": "x", "owner": "{user}", "mode": "0600"}}`,
		`{"/etc/app/key": {"secret": "ann", "group": "{user}"}}`,
	},
	"perm": {
		`{"paths": [{"path": "{path}", "owner": "{user}"}]}`, `{"paths": [{"path": "{path}", "permissions": "0710"}]}`,
	},
	"units": {
		`{"own.service": {"content": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target\n", "state": "enabled"}}`,
		`{"own.service": {"state": "masked"}}`, `{"own.service": {"dropIns": {"x": "[Service]\nUser={user}\n"}}}`,
		`{"t@.service": {"content": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=b.target\nAlso=own.service\n"}}`,
		`{"t@i.service": {"state": "enabled"}}`, `{"srv-d.mount": {"dropIns": {"x": "[Unit]\nDescription=x\n"}}}`,
	},
	"passwords": {`{"users": [{"user_name": "ops", "user_uid": 1500, "user_crypt_passwd": {"secret": "ann"}}]}`},
	"exec": {
		`{"makes": {"data": "#!/bin/sh\nmkdir -p /srv/made; : >/srv/made/f; cp -p /srv/disk/swap /srv/disk/made\n",
			"revert": "#!/bin/sh\nrm -f /srv/made/f /srv/disk/made && if test -d /srv/made; then rmdir /srv/made; fi\n"}}`,
		`{"links": {"data": "#!/bin/sh\nip link show new0 || ` + veth("new0") + `\n", "revert": "#!/bin/sh\nip link del new0\n"}}`,
		`{"{id}": {"data": "#!/bin/sh\ntest -e {path}\n"}}`,
		`{"{id}": {"data": "#!/bin/sh\n: >{dir}/by-script\n", "revert": "#!/bin/sh\nrm -f {dir}/by-script\n"}}`,
	},
	"accounts": {`{"users": [{"user_name": "ops", "user_uid": 1500}]}`},
}

type excuse struct{ one, other, why string }

// excused are pairs that are left out, by words of the two, with the reason.
var excused = []excuse{
	{`"rx": 1`, "rx-3", "a card with one queue has no fourth one: the setting waits for good, and says that there is no such key"},
	{`"/etc/app/`, `"mnt_tgt": "/etc/app/`,
		"a directory that was made for a file stays, empty, when the file goes before the mount beside it"},
}

// stanzas are the keys below conf of kinds whose names are others.
var stanzas = map[string]string{"swaps": "mounts", "passwords": "uamlite", "accounts": "uamlite"}

// generate returns the settings of every kind, in the order of their kinds' names.
func generate(t *testing.T) (all []setting) {
	for _, kind := range append([]string{"accounts"}, slices.Sorted(maps.Keys(spec.Whens()))...) {
		of := forms[kind]
		if of == nil {
			of = ruled(t, kind)
		}
		for _, form := range of {
			list := []setting{{kind: kind, conf: form}}
			for _, word := range slices.Sorted(maps.Keys(places)) {
				var next []setting
				for _, s := range list {
					if !strings.Contains(s.conf, word) {
						next = append(next, s)
						continue
					}
					for _, of := range places[word] {
						next = append(next, setting{kind, strings.ReplaceAll(s.conf, word, of)})
					}
				}
				list = next
			}
			for _, s := range list {
				s.conf = strings.ReplaceAll(s.conf, "{id}", fmt.Sprint("s", len(all)))
				all = append(all, s)
			}
		}
	}
	return all
}

// ruled returns what the first valid row of the rules of a kind has of it.
func ruled(t *testing.T, kind string) []string {
	t.Helper()
	archive, err := txtar.ParseFile("../../spec/site/testdata/rules/" + kind + ".txtar")
	if err != nil {
		t.Fatalf("no settings of kind %s can be generated: %v", kind, err)
	}
	for _, row := range archive.Files {
		var doc struct{ Conf map[string]any }
		if bytes.Contains(row.Data, []byte("\n# ")) || yaml.Unmarshal(row.Data, &doc) != nil || doc.Conf[kind] == nil {
			continue
		}
		value, err := json.Marshal(doc.Conf[kind])
		if err != nil {
			t.Fatal(err)
		}
		return []string{string(value)}
	}
	t.Fatalf("no row of the rules of kind %s is valid", kind)
	return nil
}

// generation is what a site of some settings makes a node.
type generation struct {
	items   spec.Items
	scripts []spec.Exec // that were signed
	who     accounts.Want
	secrets []spec.Secret
}

const aSite = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: n}]
layer: {base: {debian: {suite: trixie}}}
secrets: {ann: {command: [cat]}}
conf: `

const aKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"

// compile reads the settings as a site; valid is false where it refuses them.
func compile(t *testing.T, settings ...setting) (g generation, valid bool) {
	t.Helper()
	admin := map[string]any{"user_name": "admin", "user_sudo": true, "user_sshkeys": []any{aKey}}
	conf := map[string]any{"uamlite": map[string]any{"users": []any{admin}}}
	for _, s := range settings {
		var part any
		if err := json.Unmarshal([]byte(s.conf), &part); err != nil {
			t.Fatalf("%s: %v", s.conf, err)
		}
		conf = merged(conf, map[string]any{cmp.Or(stanzas[s.kind], s.kind): part}).(map[string]any)
	}
	scripts, _ := conf["exec"].(map[string]any)
	for _, script := range scripts {
		script.(map[string]any)["rerun_policy"] = "once_successfully"
	}
	text, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	s, said := site.Parse(fstest.MapFS{"site.yaml": &fstest.MapFile{Data: append([]byte(aSite), text...)}}, "site.yaml")
	if s == nil {
		if len(settings) == 1 {
			t.Fatalf("%s: %v", settings[0].conf, said.Problems)
		}
		return g, false
	}
	overlay, err := s.Overlay("n", "sha256:"+strings.Repeat("1", 64))
	if err != nil {
		t.Fatal(err)
	}
	g.items = overlay.Items
	if slices.ContainsFunc(settings, func(s setting) bool { return stanzas[s.kind] == "uamlite" }) {
		rows := map[string]string{"passwd": "ops:x:1500:1500::/home/ops:/bin/sh", "group": "ops:x:1500:", "shadow": "ops:*:::::::"}
		for file, row := range rows {
			g.who.Changes = append(g.who.Changes, accounts.Change{Key: "/etc/" + file + ":ops", To: accounts.Value{Kind: "row", Row: row}})
		}
	}
	if len(overlay.SecretNames()) > 0 {
		g.secrets = []spec.Secret{{Name: "ann", Sealed: "x"}}
	}
	return g, true
}

// merged joins what two settings say: maps by their keys, and lists; of two values for one key
// the first stays.
func merged(a, b any) any {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			for key, value := range b {
				if was, there := a[key]; there {
					value = merged(was, value)
				}
				a[key] = value
			}
		}
		return a
	case []any:
		if b, ok := b.([]any); ok {
			return append(a, b...)
		}
	}
	return a
}
