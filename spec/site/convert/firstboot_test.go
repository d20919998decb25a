// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/report"
)

const cloudConfig = `#cloud-config
hostname: web1
users:
  - default
  - name: ann
    groups: [adm, sudo]
    shell: /bin/bash
    passwd: '$y$j9T$abcdefghijklmnopqrstuv$0123456789012345678901234567890123456789012'
    ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1fJdpJzNxpv1vQbrYDYKBnVdqqDkfd3rPa0OBXVeCQ ann]
packages: [jq, [tree, '2.1.0-1']]
write_files:
  - {path: /etc/motd, content: "hello\n", permissions: '0640', owner: 'root:adm'}
  - {path: /etc/sysctl.d/90-x.conf, content: "vm.swappiness = 7\n"}
  - {path: /usr/local/bin/x, content: x}
  - {path: /etc/b64, encoding: b64, content: aGVsbG8=}
mounts:
  - [tmpfs, /srv/data, tmpfs, size=1m]
runcmd: [echo hello]
`

const ignition = `{"ignition": {"version": "3.4.0"},
 "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1fJdpJzNxpv1vQbrYDYKBnVdqqDkfd3rPa0OBXVeCQ core"], "groups": ["wheel"]}]},
 "storage": {"files": [
   {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,hello%20there%0A"}},
   {"path": "/etc/remote", "contents": {"source": "https://example.org/x"}}],
  "disks": [{"device": "/dev/sda"}]},
 "systemd": {"units": [{"name": "hello.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"}]}}
`

const butane = `variant: flatcar
version: 1.1.0
passwd:
  users:
    - name: core
      ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1fJdpJzNxpv1vQbrYDYKBnVdqqDkfd3rPa0OBXVeCQ core]
storage:
  files:
    - path: /etc/motd
      mode: 0600
      contents: {inline: "hello\n"}
    - {path: /etc/local, contents: {local: motd}}
`

// TestFirstBoot reads what other tools configure a first boot with. What is taken
// is a valid part of a site; what is not is named with its line and a reason.
func TestFirstBoot(t *testing.T) {
	for _, c := range []struct {
		name, data string
		conf       []string // fragments of the site
		missed     []string // "LINE text: why" of what was not taken, or not all of it
	}{
		{"user-data", cloudConfig,
			[]string{"user_name: 'ann'", "- 'adm'", "- 'sudo'", "name: 'jq'", "version: '2.1.0-1'", "/etc/motd:", "mode: '0640'", "group: 'adm'", "vm.swappiness: '7'", "content: 'hello'", "mnt_tgt: '/srv/data'"},
			[]string{"4 user default: only the image", "5 user ann: taken without its password, which is locked", "14 file /usr/local/bin/x: a site has files below /etc", "2 hostname: a node's name", "18 runcmd: write conf.exec"}},
		{"config.ign", ignition,
			[]string{"user_name: 'core'", "mode: '0644'", "hello there", "hello.service:", "state: 'enabled'"},
			[]string{"2 user core: taken without group wheel", "5 file /etc/remote: its content is at https://example.org/x: an import fetches nothing", "6 storage.disks: a site partitions no disks"}},
		{"config.bu", butane,
			[]string{"user_name: 'core'", "mode: '0600'"},
			[]string{"12 file /etc/local: its content is the local file motd"}},
	} {
		r, err := Import([]File{{Name: c.name, Data: []byte(c.data)}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := r.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		for _, fragment := range c.conf {
			if !strings.Contains(out.String(), fragment) {
				t.Errorf("%s: no %q in\n%s", c.name, fragment, out.String())
			}
		}
		whole := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nlayer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\nnodes: [{name: n}]\n" + out.String()
		if _, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(whole)}}, "site.yaml"); found.Err() != nil {
			t.Errorf("%s: a site refuses what was taken: %v\n%s", c.name, found.Problems, whole)
		}
		var missed []string
		for _, l := range r.Coverage {
			if l.Why != "" {
				missed = append(missed, strings.TrimSpace(lineText(l)))
			}
		}
		for i, want := range c.missed {
			if i >= len(missed) || !strings.HasPrefix(missed[i], want) {
				t.Errorf("%s: missed %q, want %q", c.name, missed, c.missed)
				break
			}
		}
		if len(missed) != len(c.missed) {
			t.Errorf("%s: missed %q, want %q", c.name, missed, c.missed)
		}
	}
}

func lineText(l coverage.Line) string { return fmt.Sprintf("%d %s: %s", l.Line, l.Text, l.Why) }

// TestNotAMap: what cannot be read is an error that names the place, not taken for empty; what has
// nothing in it is said.
func TestNotAMap(t *testing.T) {
	for data, place := range map[string]string{"#cloud-config\n- a\n": "x:2: ", "#cloud-config\na: [\n": "x:2:", `{"ignition": `: "x:1:",
		"#cloud-config\nhostname: a\nhostname: b\n": "x:3:", "#cloud-config\nhostname: \"a\\0\"\n": "x:2:",
		"#cloud-config\nwrite_files:\n- {path: /etc/a, content: !!binary aAA=}\n": "x:3:"} {
		if r, err := Import([]File{{Name: "x", Data: []byte(data)}}); err == nil || !strings.HasPrefix(err.Error(), place) || !errors.Is(err, report.ErrInvalid) {
			t.Errorf("%q: %+v, %v", data, r, err)
		}
	}
	for data, hint := range map[string]string{"#cloud-config\na: [\n": "is the file whole?", "#cloud-config\na: b\na: c\n": "", "#cloud-config\n\ta: b\n": "indent with spaces"} {
		var hinted interface{ Hint() string }
		if _, err := Import([]File{{Name: "x", Data: []byte(data)}}); !errors.As(err, &hinted) || !strings.HasPrefix(hinted.Hint(), hint) || hint == "" && hinted.Hint() != "" {
			t.Errorf("%q: %v, want the hint %q", data, err, hint)
		}
	}
	if r, err := Import([]File{{Name: "x", Data: []byte("#cloud-config-archive\n- {type: text/cloud-config, content: x}\n")}}); err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Errorf("an archive: %+v, %v", r, err)
	}
	r, err := Import([]File{{Name: "x", Data: []byte("#cloud-config\n")}})
	if err != nil || len(r.Conf) != 0 || r.Missed() != 1 {
		t.Errorf("an empty one: %+v, %v", r, err)
	}
}
