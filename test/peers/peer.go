// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// peer is one program that configures a host.
type peer struct {
	name    string
	version string // a command that prints it
	// write puts what its users would write below dir, which is /peer on the host, and the
	// host's own root.
	write func(w wanted, dir string) error
	ready string // a command that is not measured: what makes the host one of its hosts
	apply string // the command that is measured
	back  string // the command that takes everything back, "" where it has none
	most  int    // runs at most, for one that takes minutes; 0 is as many as all have
	retry string // the command of an operator whose host was killed and whose next run is not enough, "" where there is none
	note  string // what a reader has to know
}

var peers = []peer{
	{name: "caisson", version: "/peer/caisson-agent version", write: writeCaisson,
		ready: "/peer/caisson-agent enroll --from oci:/peer/out --fleet metal-a --key /peer/keys/operator.pub --node host",
		apply: "/peer/caisson-agent apply", back: "/peer/caisson-agent restore --all", retry: "/peer/caisson-agent apply --retry",
		note: "an attached host; the signed overlay lies on its disk"},
	{name: "ansible", version: "ansible-playbook --version | head -1", write: writeAnsible,
		most:  1,
		apply: "ansible-playbook -c local -i localhost, /peer/site.yaml",
		note:  "parameters as one file with a handler, which is the fast way, and sees no value that was changed by hand"},
	{name: "puppet", version: "puppet --version", write: writePuppet,
		apply: "puppet apply /peer/site.pp",
		note:  "parameters as one file with a refresh, as above"},
	{name: "cfengine", version: "cf-agent --version | head -1", write: writeCFEngine,
		ready: "mkdir -p /var/lib/cfengine3/inputs",
		apply: "cf-agent --no-lock --file /peer/site.cf",
		note:  "parameters as one file with a command when it is changed, as above"},
	{name: "systemd", version: "systemctl --version | head -1", write: writeSystemd,
		apply: "systemd-sysctl && systemd-tmpfiles --create /peer/site.conf && systemctl preset-all --preset-mode=enable-only && mount -a",
		note:  "sysctl.d, tmpfiles.d, presets and fstab: sets all each time, and looks at nothing"},
	{name: "cloud-init", version: "cloud-init --version", write: writeCloudInit,
		apply: "cloud-init init --local && cloud-init init && cloud-init modules --mode=config && cloud-init modules --mode=final",
		note:  "once for each instance: it never looks again"},
	{name: "ignition", version: "/usr/lib/dracut/modules.d/30ignition/ignition --version", write: writeIgnition,
		ready: "ln -s /bin/true /usr/sbin/setfiles", // it sets labels of SELinux where there is none
		apply: "export IGNITION_CONFIG_FILE=/peer/config.ign; for stage in fetch files; do " +
			"/usr/lib/dracut/modules.d/30ignition/ignition --platform=file --stage=$stage --root=/ --config-cache=/run/config.ign --log-to-stdout || exit; " +
			"done; systemd-sysctl && systemctl preset-all --preset-mode=enable-only && mount -a",
		note: "once for each machine, in its first boot, which loads the parameters and mounts"},
}

// put writes files below dir.
func put(dir string, files ...pair) error {
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(f.Value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// each joins what a function makes of each pair.
func each(pairs []pair, f func(pair) string) string {
	var b strings.Builder
	for _, p := range pairs {
		b.WriteString(f(p))
	}
	return b.String()
}

// sysctlD is the parameters as a file of sysctl.d.
func sysctlD(w wanted) string {
	return each(w.Sysctls, func(p pair) string { return p.Name + " = " + p.Value + "\n" })
}

// tree writes the files, units and drop-ins as they are to be below dir/files.
func tree(w wanted, dir string) error {
	for _, group := range []struct {
		at    string
		pairs []pair
	}{{"", w.Files}, {"etc/systemd/system", w.Units}, {"etc/systemd/system", w.DropIns}} {
		if err := put(filepath.Join(dir, "files", group.at), group.pairs...); err != nil {
			return err
		}
	}
	return put(dir, pair{"files/etc/sysctl.d/90-site.conf", sysctlD(w)})
}

func writeAnsible(w wanted, dir string) error {
	if err := tree(w, dir); err != nil {
		return err
	}
	return put(dir, pair{"site.yaml", `- hosts: all
  gather_facts: false
  tasks:
    - {name: files, ansible.builtin.copy: {src: /peer/files/etc/site, dest: /etc/, mode: "0644", directory_mode: "0755"}}
    - {name: units, ansible.builtin.copy: {src: /peer/files/etc/systemd/system/, dest: /etc/systemd/system/, mode: "0644", directory_mode: "0755"}}
    - {name: parameters, ansible.builtin.copy: {src: /peer/files/etc/sysctl.d/90-site.conf, dest: /etc/sysctl.d/90-site.conf, mode: "0644"}, notify: sysctl}
    - {name: enabled, ansible.builtin.systemd_service: {name: "{{ item }}", enabled: true}, loop: [` +
		strings.TrimSuffix(each(w.Units, func(u pair) string { return u.Name + ", " }), ", ") + `]}
    - name: mounts
      ansible.posix.mount: {path: "{{ item }}", src: tmpfs, fstype: tmpfs, opts: "size=1m,mode=0755", state: mounted}
      loop: [` + strings.TrimSuffix(each(w.Mounts, func(m pair) string { return m.Name + ", " }), ", ") + `]
  handlers:
    - {name: sysctl, ansible.builtin.command: sysctl -q -p /etc/sysctl.d/90-site.conf}
`})
}

func writePuppet(w wanted, dir string) error {
	if err := tree(w, dir); err != nil {
		return err
	}
	return put(dir, pair{"site.pp", "file { ['/etc/site']: ensure => directory, recurse => true, source => '/peer/files/etc/site', " +
		"mode => '0644' }\n" +
		"file { '/etc/sysctl.d/90-site.conf': source => '/peer/files/etc/sysctl.d/90-site.conf' } ~> exec { '/usr/sbin/sysctl -q -p " +
		"/etc/sysctl.d/90-site.conf': refreshonly => true }\n" +
		each(w.Units, func(u pair) string {
			return fmt.Sprintf("file { '/etc/systemd/system/%[1]s': source => '/peer/files/etc/systemd/system/%[1]s' } -> service { '%[1]s': "+
				"enable => true, provider => systemd }\n"+
				"file { '/etc/systemd/system/%[1]s.d': ensure => directory, recurse => true, source => '/peer/files/etc/systemd/system/%[1]s.d' "+
				"}\n", u.Name)
		}) + each(w.Mounts, func(m pair) string {
		return fmt.Sprintf("file { '%[1]s': ensure => directory } -> mount { '%[1]s': ensure => mounted, device => 'tmpfs', fstype => "+
			"'tmpfs', options => '%[2]s' }\n", m.Name, m.Value)
	})})
}

func writeCFEngine(w wanted, dir string) error {
	if err := tree(w, dir); err != nil {
		return err
	}
	return put(dir, pair{"site.cf", `body common control { bundlesequence => { "site" }; }
body copy_from from(d) { source => "$(d)"; compare => "digest"; }
body depth_search all { depth => "inf"; }
body classes changed(c) { promise_repaired => { "$(c)" }; }
body contain shell { useshell => "useshell"; }
bundle agent site {
  vars:
    "units" slist => { ` + strings.TrimSuffix(each(w.Units, func(u pair) string { return `"` + u.Name + `", ` }), ", ") + ` };
    "mounts" slist => { ` + strings.TrimSuffix(each(w.Mounts, func(m pair) string { return `"` + m.Name + `", ` }), ", ") + ` };
  files:
    "/etc/site/." create => "true";
    "/etc/site" copy_from => from("/peer/files/etc/site"), depth_search => all;
    "/etc/systemd/system" copy_from => from("/peer/files/etc/systemd/system"), depth_search => all;
    "/etc/sysctl.d/90-site.conf" copy_from => from("/peer/files/etc/sysctl.d/90-site.conf"), classes => changed("sysctl");
    "$(mounts)/." create => "true";
  classes:
    "off_$(units)" not => fileexists("/etc/systemd/system/multi-user.target.wants/$(units)");
    "gone_$(mounts)" not => returnszero("/usr/bin/mountpoint -q $(mounts)", "noshell");
  commands:
    sysctl:: "/usr/sbin/sysctl -q -p /etc/sysctl.d/90-site.conf";
    any::
      "/usr/bin/systemctl enable $(units)" if => canonify("off_$(units)");
      "/usr/bin/mount -t tmpfs -o size=1m,mode=0755 tmpfs $(mounts)" if => canonify("gone_$(mounts)");
}
`})
}

func writeCloudInit(w wanted, dir string) error {
	type m = map[string]any
	var files []m
	var mounts, commands [][]string
	file := func(name, content string) {
		files = append(files, m{"path": name, "content": content, "permissions": "0644"})
	}
	file("/etc/sysctl.d/90-site.conf", sysctlD(w))
	for _, f := range w.Files {
		file(f.Name, f.Value)
	}
	for _, u := range slices.Concat(w.Units, w.DropIns) {
		file("/etc/systemd/system/"+u.Name, u.Value)
	}
	for _, at := range w.Mounts {
		mounts = append(mounts, []string{"tmpfs", at.Name, "tmpfs", at.Value, "0", "0"})
	}
	commands = append(commands, []string{"sysctl", "-q", "-p", "/etc/sysctl.d/90-site.conf"})
	for _, u := range w.Units {
		commands = append(commands, []string{"systemctl", "enable", u.Name})
	}
	text, err := json.Marshal(m{"write_files": files, "mounts": mounts, "runcmd": commands})
	if err != nil {
		return err
	}
	return put(filepath.Dir(dir), pair{"var/lib/cloud/seed/nocloud/user-data", "#cloud-config\n" + string(text)},
		pair{"var/lib/cloud/seed/nocloud/meta-data", "instance-id: host\n"},
		pair{"etc/cloud/cloud.cfg.d/90-site.cfg", "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n"})
}

func writeIgnition(w wanted, dir string) error {
	type m = map[string]any
	var files, units []m
	file := func(name, content string) {
		files = append(files, m{"path": name, "overwrite": true, "mode": 0o644, "contents": m{"source": "data:," + url.PathEscape(content)}})
	}
	file("/etc/sysctl.d/90-site.conf", sysctlD(w))
	file("/etc/fstab", fstab(w))
	for _, f := range w.Files {
		file(f.Name, f.Value)
	}
	for n, u := range w.Units {
		units = append(units, m{"name": u.Name, "enabled": true, "contents": u.Value, "dropins": []m{{"name": "50-site.conf",
			"contents": w.DropIns[n].Value}}})
	}
	text, err := json.Marshal(m{"ignition": m{"version": "3.3.0"}, "storage": m{"files": files}, "systemd": m{"units": units}})
	if err != nil {
		return err
	}
	// Debian's looks for a policy of SELinux, which Debian does not have.
	return put(filepath.Dir(dir), pair{"peer/config.ign", string(text)}, pair{"etc/selinux/config", "SELINUX=disabled\nSELINUXTYPE=default\n"})
}

// fstab is the mounts as a file of fstab(5).
func fstab(w wanted) string {
	return each(w.Mounts, func(m pair) string { return "tmpfs " + m.Name + " tmpfs " + m.Value + ",X-mount.mkdir 0 0\n" })
}

func writeSystemd(w wanted, dir string) error {
	if err := tree(w, dir); err != nil {
		return err
	}
	host := filepath.Dir(dir) // its root
	if err := put(host, pair{"etc/sysctl.d/90-site.conf", sysctlD(w)}, pair{"etc/fstab", fstab(w)},
		pair{"etc/systemd/system-preset/90-site.preset", each(w.Units, func(u pair) string { return "enable " + u.Name + "\n" })}); err != nil {
		return err
	}
	copies := func(at string) func(pair) string {
		return func(p pair) string { return fmt.Sprintf("C+ %s%s 0644 - - - /peer/files%[1]s%[2]s\n", at, p.Name) }
	}
	return put(dir, pair{"site.conf", each(w.Files, copies("")) + each(w.Units, copies("/etc/systemd/system/")) + each(w.DropIns,
		copies("/etc/systemd/system/"))})
}
