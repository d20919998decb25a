// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestWhatASiteCannotSay: for each key that an import knows, a value which a site
// cannot express is left out or named, and never widened.
func TestWhatASiteCannotSay(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		conf string   // JSON
		why  []string // of the lines that have one, in order
	}{
		"a rule of sudo": {"#cloud-config\nusers:\n- {name: a, sudo: 'ALL=(root) NOPASSWD:/usr/bin/systemctl restart app'}\n- {name: b, sudo: ['ALL=(ALL) ALL']}\n" +
			"- {name: c, sudo: 'ALL=(postgres) NOPASSWD: ALL'}\n- {name: d, sudo: ['ALL=(ALL) NOPASSWD:ALL, !/bin/su']}\n- {name: e, sudo: ['ALL=(ALL) NOPASSWD:ALL']}\n- {name: f, sudo: false}\n" +
			"- {name: g, sudo: ['ALL=(ALL:ALL) NOPASSWD: ALL', 'ALL=(ALL) !/bin/su']}\n",
			`{"uamlite":{"users":[{"user_name":"a"},{"user_name":"b"},{"user_name":"c"},{"user_name":"d"},{"user_name":"e","user_sudo":true},{"user_name":"f"},{"user_name":"g"}]}}`,
			[]string{"without the rule of sudo", "without the rule of sudo", "without the rule of sudo", "without the rule of sudo", "without the rule of sudo"}},
		"an account that ends": {"#cloud-config\nusers:\n- {name: a, expiredate: '2027-01-01'}\n- {name: b, ssh_redirect_user: true, ssh_authorized_keys: [k]}\n",
			`{"uamlite":{"users":[{"user_name":"b"}]}}`, []string{"it has expiredate", "without its keys"}},
		"a password": {"#cloud-config\nusers:\n- {name: a, passwd: '$6$a$bcdefghi'}\n- {name: b, lock_passwd: true, hashed_passwd: '$6$a$bcdefghi'}\n", `{"uamlite":{"users":[{"user_name":"a"},{"user_name":"b"}]}}`,
			[]string{"without its password", "without its password"}},
		"a password that text locks": {"#cloud-config\nusers:\n- {name: a, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: 'false'}\n- {name: b, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: n}\n- {name: c, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: !!str no}\n" +
			"- {name: d, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: nO}\n- {name: e, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: [x]}\n",
			`{"uamlite":{"users":[{"user_name":"a"},{"user_name":"b"},{"user_name":"c"},{"user_name":"d"},{"user_name":"e"}]}}`,
			[]string{"it is not a text", "without its password", "without its password", "without its password", "without its password", "without its password"}},
		"a password that nothing locks": {"#cloud-config\nusers:\n- {name: a, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: No}\n- {name: b, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: 0}\n- {name: c, passwd: $6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef., lock_passwd: ~}\n",
			`{"uamlite":{"users":[{"user_crypt_passwd":"$6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef.","user_name":"a"},{"user_crypt_passwd":"$6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef.","user_name":"b"},{"user_crypt_passwd":"$6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef.","user_name":"c"}]}}`, nil},
		"keys that are sent on": {"#cloud-config\nusers:\n- {name: b, ssh_redirect_user: default, ssh_authorized_keys: [k]}\n", `{"uamlite":{"users":[{"user_name":"b"}]}}`, []string{"without its keys"}},
		"mounts that go":        {"#cloud-config\nmounts:\n- [swap, null]\n- [/dev/a, /srv, ext4, '']\n- x\n", `{}`, []string{"it takes a mount away", "it takes a mount away", "it takes a mount away"}},
		"mounts of no line":     {"#cloud-config\nmounts:\n- ['#x', /srv, ext4]\n- [/dev/a, /srv, \"ext4\\n#\"]\n- [/dev/a, /srv, \"ext4\\tro\"]\n", `{}`, []string{"fstab has a comment", "fstab has a comment", "fstab has a comment"}},
		"no list":               {"#cloud-config\nusers: {a: b}\npackages: jq\nwrite_files: x\nmounts: y\n", `{}`, []string{"it is not a list", "it is not a list", "it is not a list", "it is not a list"}},
		"a network":             {"#cloud-config\nnetwork: {version: 2}\n", `{}`, []string{"write network.interfaces"}},
		"a source":              {"#cloud-config\nwrite_files:\n- {path: /etc/a, source: {uri: https://example.org/a}}\n", `{}`, []string{"an import fetches nothing"}},
		"a file system": {`{"ignition":{"version":"3.4.0"},"storage":{"filesystems":[{"device":"/dev/vdb","path":"/var/data","format":"xfs","mountOptions":["ro","noexec"]}]}}`,
			`{}`, []string{"nothing mounts it when the machine runs"}},
		"options of a mount": {"variant: fcos\nversion: 1.5.0\nstorage:\n  filesystems:\n  - {device: /dev/vdb, path: /var/data, format: xfs, with_mount_unit: true, mount_options: [ro, noexec]}\n" +
			"  - {device: /dev/vdc, format: swap, with_mount_unit: true}\n",
			`{"mounts":{"swap-dev-vdc":{"device":"/dev/vdc","mnt_tgt":"none","type":"swap"},"var-data":{"device":"/dev/vdb","mnt_tgt":"/var/data","options":"ro,noexec","type":"xfs"}}}`,
			[]string{"a site makes no file systems", "a site makes no file systems"}},
		"the mode alone": {`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/ssh/sshd_config","mode":384},{"path":"/etc/security/limits.conf","user":{"name":"root"}}]}}`,
			`{}`, []string{"its content stays as it is on the host", "its content stays as it is on the host"}},
		"a mode in decimal": {"variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /etc/a, mode: 420, contents: {inline: x}}, {path: /etc/b, mode: 0640, contents: {inline: x}}]}\n",
			`{"files":{"/etc/a":{"content":"x","mode":"0644"},"/etc/b":{"content":"x","mode":"0640"}}}`, nil},
		"texts beside": {"variant: fcos\nversion: 1.5.0\nsystemd:\n  units:\n  - {name: a.service, enabled: true, contents_local: a.service}\n  - {name: b.service, dropins: [{name: 10-x.conf, contents_local: x.conf}]}\n",
			`{"units":{"a.service":{"state":"enabled"}}}`, []string{"its text is in a local file", "its text is in a local file"}},
		"openshift": {"variant: openshift\nversion: 4.14.0\nopenshift: {extensions: [usbguard]}\n", `{}`, []string{"write conf.apt.packages"}},
		"elsewhere": {`{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://example.org/x"}]}}}`, `{}`, []string{"an import fetches nothing"}},
		"an empty file that hides one": {"#cloud-config\nwrite_files:\n- {path: /etc/sysctl.d/10-a.conf, content: ''}\n- {path: /etc/sysctl.d/10-b.conf, content: '# none'}\n- {path: /etc/systemd/system/a.service}\n", `{"units":{"a.service":{"state":"masked"}}}`,
			[]string{"it says nothing", "it says nothing"}},
		"rights of a file that is read": {"#cloud-config\nwrite_files:\n- {path: /etc/sysctl.d/10-a.conf, content: 'vm.swappiness = 5', permissions: '0600', owner: 'root:adm'}\n" +
			"- {path: /etc/systemd/system/a.service, content: '[Service]', permissions: '0600', owner: 'app'}\n- {path: /etc/sysctl.d/10-b.conf, content: 'vm.stat_interval = 5', permissions: '0644', owner: 'root:root'}\n",
			`{"sysctl":{"vm.stat_interval":"5","vm.swappiness":"5"},"units":{"a.service":{"content":"[Service]"}}}`,
			[]string{"taken without its mode 0600, its group adm", "taken without its mode 0600, its owner app"}},
		"content in base64": {"#cloud-config\nwrite_files:\n- {path: /etc/a, content: !!binary aGVsbG8=}\n", `{"files":{"/etc/a":{"content":"hello"}}}`, nil},
		"maps in place of lists": {"#cloud-config\nusers:\n- {name: a, groups: {adm: null, sudo: null}}\n- {name: b, ssh_authorized_keys: {x: y}}\n- {name: c, groups: [adm, [x]]}\n", `{"uamlite":{"users":[{"user_name":"a"},{"user_name":"b"},{"user_groups":["adm"],"user_name":"c"}]}}`,
			[]string{"groups: it is not a list of texts", "ssh_authorized_keys: it is not a list of texts", "groups: it is not a list of texts"}},
		"a key with commas":          {"#cloud-config\nusers:\n- {name: a, ssh_authorized_keys: 'from=\"192.0.2.1,192.0.2.2\" " + drawnKey + "'}\n", `{"uamlite":{"users":[{"user_name":"a","user_sshkeys":["from=\"192.0.2.1,192.0.2.2\" ` + drawnKey + `"]}]}}`, nil},
		"content that is not a text": {"#cloud-config\nwrite_files:\n- {path: /etc/a, content: [x]}\n", `{}`, []string{"its content is not a text"}},
		"files that are kinds of a site": {"#cloud-config\nwrite_files:\n- {path: /etc/fstab, content: \"/dev/a /srv ext4\\n\"}\n- {path: /etc/modules-load.d/a.conf, content: br_netfilter}\n",
			`{"modules":{"load":["br_netfilter"]},"mounts":{"srv":{"device":"/dev/a","mnt_tgt":"/srv","type":"ext4"}}}`, nil},
		"a user by its name alone": {"#cloud-config\nusers: [default, bare]\n", `{"uamlite":{"users":[{"user_name":"bare"}]}}`, []string{"only the image knows"}},
		"what else a file says": {"variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /etc/a, contents: {inline: x, compression: gzip}}, {path: /etc/b, contents: {inline: x, verification: {hash: y}}}]}\nsystemd: {units: [{name: a.service, mask: false}]}\n",
			`{"files":{"/etc/b":{"content":"x"}}}`, []string{"its content is compressed", "verification: the content stands", "it says no more"}},
		"a mount's pass": {"/dev/a /srv ext4 x-systemd.automount 0 2\n", `{"mounts":{"srv":{"device":"/dev/a","mnt_tgt":"/srv","type":"ext4"}}}`, []string{"taken without x-systemd.automount: write before and after instead; without its fsck pass 2"}},
		"what is appended": {`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/fstab","append":true,"contents":{"source":"data:,x"}},{"path":"/etc/b","append":[{"source":"data:,x"}]}]}}`,
			`{}`, []string{"it is appended", "it is appended"}},
		"an older Ignition":          {`{"ignition":{"version":"2.3.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/b","contents":{"source":"data:,x"}}]}}`, `{}`, []string{"only versions 3"}},
		"Ignition without a version": {`{"ignition":{},"systemd":{"units":[{"name":"a.service","enabled":true}]}}`, `{}`, []string{"only versions 3"}},
		"an account that goes":       {`{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"a","shouldExist":false}]}}`, `{}`, []string{"it takes an account away"}},
		"numbers of a directory": {"app:x:100001:100001::/home/app:/bin/bash\nold:x:501:501::/home/old:/bin/bash\nirc:x:39:39::/run/ircd:/usr/sbin/nologin\n", `{}`,
			[]string{"numbers from 1000 to 59999", "numbers from 1000 to 59999", "packages make those"}},
		"a home": {"svc:x:2000:2000:Backup robot:/srv/svc:/usr/sbin/nologin\nann:x:1001:100::/home/ann:/bin/bash\n",
			`{"uamlite":{"users":[{"user_name":"svc","user_shell":"/usr/sbin/nologin","user_sshkeys":["Unmanaged"],"user_uid":"2000"},{"user_name":"ann","user_shell":"/bin/bash","user_sshkeys":["Unmanaged"],"user_uid":"1001"}]}}`,
			[]string{"without its home /srv/svc: a site makes /home/svc; without its comment", "without its primary group 100"}},
	} {
		r, err := Import([]File{{Name: "f", Data: []byte(c.text)}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := json.Marshal(r.Conf)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.conf {
			t.Errorf("%s: %s, want %s", name, got, c.conf)
		}
		var why []string
		for _, l := range r.Coverage {
			if l.Why != "" {
				why = append(why, l.Text+": "+l.Why)
			}
		}
		if len(why) != len(c.why) || slices.ContainsFunc(c.why, func(w string) bool {
			return !slices.ContainsFunc(why, func(l string) bool { return strings.Contains(l, w) })
		}) {
			t.Errorf("%s: %q, want %q", name, why, c.why)
		}
	}
}
