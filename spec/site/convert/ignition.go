// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// readIgnition reads Ignition's JSON and the YAML of butane, which differ in the
// spelling of keys and in how they hold content.
func readIgnition(r *reading) { r.ignition(r.Document()) }

func (r *reading) ignition(v *tree.Value) {
	if version := text(v.Get("ignition"), "version"); v.Get("variant") == nil && !strings.HasPrefix(version, "3.") {
		r.Miss(max(line(v), 1), "ignition.version "+version, "only versions 3 are read: nothing of the document is taken")
		return
	}
	key := func(camel, snake string) string {
		if v.Get("variant") != nil {
			return snake
		}
		return camel
	}
	if p := v.Get("passwd"); p != nil {
		r.Entries(p, "users", func(u *tree.Value) { r.ignitionUser(u, key) })
		r.Rest(p, "passwd", map[string]string{"groups": "groups come with packages and users"}, "users")
	}
	if s := v.Get("storage"); s != nil {
		r.Entries(s, "files", r.ignitionFile)
		r.Entries(s, "filesystems", func(f *tree.Value) { r.ignitionMount(f, key("mountOptions", "mount_options")) })
		r.Rest(s, "storage", map[string]string{"disks": "a site partitions no disks", "raid": "a site assembles no arrays",
			"luks":  "a site encrypts no disks",
			"links": "a site has files, not links", "directories": "directories are made with their files",
			"trees": "its files lie beside the document: import them too"}, "files", "filesystems")
	}
	if s := v.Get("systemd"); s != nil {
		r.Entries(s, "units", r.unit)
		r.Rest(s, "systemd", nil, "units")
	}
	if i := v.Get("ignition"); i != nil {
		r.Rest(i, "ignition", map[string]string{"config": "an import fetches nothing: import that document, too"}, "version")
	}
	if o := v.Get("openshift"); o != nil {
		r.kernelArgs(o, "kernel_arguments")
		r.Rest(o, "openshift", machineConfigReasons, "kernel_arguments")
	}
	arguments := key("kernelArguments", "kernel_arguments")
	if k := v.Get(arguments); k != nil {
		r.kernelArgs(k, key("shouldExist", "should_exist"))
		r.Rest(k, arguments, map[string]string{key("shouldNotExist", "should_not_exist"): "a kernel has the arguments of the site and no others"},
			key("shouldExist", "should_exist"))
	}
	r.Rest(v, "", nil, "ignition", "variant", "version", "passwd", "storage", "systemd", "openshift", "metadata", arguments)
	r.labels(v)
}

// machineConfigReasons say where a site has what MachineConfig says beside Ignition.
var machineConfigReasons = map[string]string{
	"kernelType": "write layer.kernel.package", "kernel_type": "write layer.kernel.package", "extensions": "write conf.apt.packages",
	"osImageURL": "write layer.base", "baseOSExtensionsContainerImage": "write layer.base",
	"fips": "a layer has Debian's libraries, which have no such mode",
}

// readMachineConfig reads the MachineConfig of OpenShift: Ignition in a document of
// Kubernetes.
func readMachineConfig(r *reading) {
	v := r.Document()
	r.Rest(v, "", nil, "apiVersion", "kind", "metadata", "spec")
	r.labels(v)
	if s := v.Get("spec"); s != nil {
		r.kernelArgs(s, "kernelArguments")
		if c := s.Get("config"); c != nil {
			r.ignition(c)
		}
		r.Rest(s, "spec", machineConfigReasons, "config", "kernelArguments")
	}
}

// labels names those of a MachineConfig: the nodes that it is for.
func (r *reading) labels(v *tree.Value) {
	if m := v.Get("metadata"); m != nil {
		r.Rest(m, "metadata", map[string]string{"labels": "a site says which nodes it means by overrides"}, "name")
	}
}

// kernelArgs takes a list of arguments of the kernel.
func (r *reading) kernelArgs(v *tree.Value, key string) {
	r.Entries(v, key, func(a *tree.Value) { r.kernelArg(line(a), "kernel argument "+a.Text, a.Text) })
}

func (r *reading) kernelArg(n int, line, arg string) {
	r.Item(n, line).Take(coverage.Machine, "argument "+arg, []string{"kernel", "args", appended}, arg)
}

func (r *reading) ignitionUser(u *tree.Value, key func(camel, snake string) string) {
	name, hash, keys, exists := text(u, "name"), key("passwordHash", "password_hash"),
		key("sshAuthorizedKeys", "ssh_authorized_keys"), key("shouldExist", "should_exist")
	if u.Get(exists) != nil && !truth(u, exists) {
		r.Miss(line(u), "user "+name, "it takes an account away")
		return
	}
	r.account(line(u), account{name: name, password: text(u, hash), uid: text(u, "uid"), shell: text(u, "shell"),
		keys: r.Texts(u, keys), groups: r.Texts(u, "groups")})
	r.Rest(u, "user "+name, nil, "name", "uid", "shell", "groups", exists, hash, keys)
}

// ignitionMount takes a file system that has a mount unit. Without one it is mounted
// while Ignition runs and never again.
func (r *reading) ignitionMount(f *tree.Value, options string) {
	device, at, format := text(f, "device"), text(f, "path"), text(f, "format")
	what := "filesystem " + at
	if at == "" {
		what = "filesystem " + device
	}
	swap := format == "swap"
	switch {
	case at == "" && !swap:
		r.Miss(line(f), what, "it is not mounted anywhere")
	case !truth(f, "with_mount_unit"):
		r.Miss(line(f), what, "nothing mounts it when the machine runs, unless a unit does: a site makes no file systems")
	default:
		id, same, value := mountID(at), at, map[string]any{"device": device, "mnt_tgt": at, "type": format}
		if swap {
			id, same, value["mnt_tgt"] = mountID("swap"+device), "swap "+device, "none"
		}
		if list := r.Texts(f, options); len(list) > 0 {
			value["options"] = strings.Join(list, ",")
		}
		r.Item(line(f), what).Take("mounts", same, []string{id}, value).Why = "taken as a mount: a site makes no file systems"
	}
}

func (r *reading) ignitionFile(f *tree.Value) {
	out := file{path: text(f, "path"), mode: octal(f, "mode")}
	what := "file " + out.path
	if u := f.Get("user"); u != nil {
		out.owner = first(u, "name", "id")
	}
	if g := f.Get("group"); g != nil {
		out.group = first(g, "name", "id")
	}
	r.Rest(f, what, nil, "path", "mode", "user", "group", "contents", "append", "overwrite")
	c := f.Get("contents")
	if c != nil {
		r.Rest(c, what+" contents", map[string]string{"verification": "the content stands in the site"},
			"inline", "local", "source", "compression")
	}
	switch {
	case truth(f, "append"), f.Get("append") != nil && len(f.Get("append").List) > 0:
		out.appends = true
	case c == nil || len(c.Fields) == 0:
		r.Miss(line(f), what, "its content stays as it is on the host: conf.perm gives a file its mode and owner")
		return
	case c.Get("local") != nil:
		r.Miss(line(f), what, "its content is the local file "+text(c, "local")+": write file: in the site")
		return
	case text(c, "compression") != "" || text(c, "source") == "" && c.Get("inline") == nil:
		r.Miss(line(f), what, "its content is compressed or not given")
		return
	case c.Get("inline") != nil:
		out.content = text(c, "inline")
	default:
		content, err := dataURL(text(c, "source"))
		if err != nil {
			r.Miss(line(f), what, err.Error())
			return
		}
		out.content = content
	}
	r.file(line(f), out)
}

// talosReasons say where a site has what the machine part of Talos says.
var talosReasons = map[string]string{
	"type": "write a label of the node", "files": "write conf.files", "env": "write a drop-in with Environment=",
	"kubelet": "a cluster's programs are packages: see docs/containers.md", "registries": "write conf.files below /etc/containerd",
	"pods": "write conf.files below /etc/kubernetes/manifests", "certSANs": "a node has no interface of its own",
	"token": "write secrets", "ca": "write secrets", "acceptedCAs": "write machine.cas",
	"disks": "a site partitions no disks", "systemDiskEncryption": "a site encrypts no disks",
	"udev": "write conf.files below /etc/udev/rules.d", "logging": "write conf.files", "nodeLabels": "write labels of the node",
}

// readTalos reads the machine configuration of Talos: what it says to the kernel, and
// servers of names and time.
func readTalos(r *reading) {
	v := r.Document()
	r.Rest(v, "", map[string]string{"cluster": talosReasons["kubelet"]}, "version", "debug", "persist", "machine")
	m := v.Get("machine")
	if m == nil {
		return
	}
	r.Each(m, "sysctls", func(key string, value *tree.Value) { r.sysctl(line(value), "sysctl "+key, key, value.Text, false) })
	r.Each(m, "sysfs", func(key string, value *tree.Value) {
		if value.Kind != tree.Scalar {
			r.Miss(line(value), "sysfs "+key, "it is not a text")
			return
		}
		r.sysfs(line(value), "sysfs "+key, "/sys/"+strings.ReplaceAll(key, ".", "/"), value.Text)
	})
	if k := m.Get("kernel"); k != nil {
		r.Entries(k, "modules", func(e *tree.Value) {
			r.loaded(line(e), "module "+text(e, "name"), text(e, "name"))
			for _, option := range r.Texts(e, "parameters") {
				r.moduleOption(line(e), "module "+text(e, "name"), text(e, "name"), option)
			}
			r.Rest(e, "module", nil, "name", "parameters")
		})
		r.Rest(k, "kernel", nil, "modules")
	}
	if i := m.Get("install"); i != nil {
		r.Entries(i, "extraKernelArgs", func(a *tree.Value) {
			if strings.HasPrefix(a.Text, "-") {
				r.Miss(line(a), "kernel argument "+a.Text, "it takes an argument away: a kernel has those of the site and no others")
				return
			}
			r.kernelArg(line(a), "kernel argument "+a.Text, a.Text)
		})
		r.Rest(i, "install", map[string]string{"disk": "see layer.stateDisk", "image": "write layer"}, "extraKernelArgs")
	}
	if n := m.Get("network"); n != nil {
		r.Entries(n, "nameservers", func(a *tree.Value) { r.network(line(a), "nameserver "+a.Text, "dns", a.Text) })
		r.Rest(n, "network", map[string]string{"hostname": cloudReasons["hostname"], "interfaces": "write network.interfaces"}, "nameservers")
	}
	if t := m.Get("time"); t != nil {
		r.Entries(t, "servers", func(a *tree.Value) { r.network(line(a), "time server "+a.Text, "ntp", a.Text) })
		r.Rest(t, "time", nil, "servers")
	}
	r.Rest(m, "machine", talosReasons, "sysctls", "sysfs", "kernel", "install", "network", "time")
}

// cloudReasons say where a site has what cloud-config says elsewhere.
var cloudReasons = map[string]string{
	"hostname": "a node's name is that in nodes", "fqdn": "a node's name is that in nodes",
	"ntp": "write network.ntp", "ca_certs": "write machine.cas", "ca-certs": "write machine.cas", "apt": "write conf.apt.repositories",
	"runcmd": "write conf.exec: a script has a policy there", "bootcmd": "write conf.exec: a script has a policy there",
	"package_update": "packages are resolved when the layer is built", "package_upgrade": "packages are resolved when the layer is built",
	"ssh_authorized_keys": "they are of the image's default user: write them to a user", "disable_root": "root has no password in a layer",
	"network":  "write network.interfaces",
	"growpart": "a site grows no partitions", "resize_rootfs": "a site grows no file systems", "swap": "a site makes no swap files",
}

// readCloudConfig reads the YAML of cloud-init.
func readCloudConfig(r *reading) {
	v := r.Document()
	r.Entries(v, "users", r.cloudUser)
	r.Entries(v, "packages", func(p *tree.Value) {
		value := map[string]any{}
		switch {
		case p.Kind == tree.Scalar:
			value["name"] = p.Text
		case len(p.List) == 2 && p.List[0].Kind == tree.Scalar:
			value["name"], value["version"] = p.List[0].Text, p.List[1].Text
		default:
			r.Miss(line(p), "packages", "it is neither a name nor a name and a version")
			return
		}
		r.Item(line(p), "package "+value["name"].(string)).Take("apt", "package "+value["name"].(string), []string{"packages", "+"}, value)
	})
	r.Entries(v, "write_files", r.cloudFile)
	r.Entries(v, "mounts", func(m *tree.Value) {
		fields := plain.Each(m.List, func(f *tree.Value) string { return strings.ReplaceAll(f.Text, " ", `\040`) })
		if len(m.List) == 0 || slices.ContainsFunc(m.List, func(f *tree.Value) bool { return f.Text == "" }) {
			r.Miss(line(m), "mounts", "it takes a mount away, or leaves a field empty")
			return
		}
		blank := func(c rune) bool { return c != ' ' && unicode.IsSpace(c) }
		if strings.HasPrefix(fields[0], "#") || slices.ContainsFunc(fields, func(f string) bool { return strings.ContainsFunc(f, blank) }) {
			r.Miss(line(m), "mounts", "fstab has a comment there, or more fields or lines")
			return
		}
		in := &reading{&coverage.Reading{Name: r.Name, Data: strings.Join(fields, " ")}}
		readFstab(in)
		for _, p := range in.Items {
			p.Line.Line = line(m)
		}
		r.Items = append(r.Items, in.Items...)
	})
	r.Rest(v, "", cloudReasons, "users", "packages", "write_files", "mounts")
}

func (r *reading) cloudUser(u *tree.Value) {
	switch {
	case u.Kind == tree.Scalar && u.Text == "default":
		r.Miss(line(u), "user default", "only the image knows who that is")
		return
	case u.Kind == tree.Scalar:
		r.account(line(u), account{name: u.Text})
		return
	}
	name := text(u, "name")
	for _, key := range []string{"expiredate", "inactive"} {
		if u.Get(key) != nil {
			r.Miss(line(u), "user "+name, "it has "+key+", and accounts of a site do not expire by a date")
			return
		}
	}
	a := account{name: name, uid: text(u, "uid"), shell: text(u, "shell"),
		keys: r.Texts(u, "ssh_authorized_keys"), groups: r.Words(u, "groups")}
	if hash := first(u, "hashed_passwd", "passwd"); hash != "" && untrue(u.Get("lock_passwd")) {
		a.password = hash
	} else if hash != "" {
		a.without = append(a.without, "its password, which is locked unless lock_passwd is false")
	}
	if v := u.Get("ssh_redirect_user"); v != nil && !untrue(v) {
		a.keys, a.without = nil, append(a.without, "its keys, which ssh_redirect_user sends to another user")
	}
	a.sudo, a.without = cloudSudo(u.Get("sudo"), a.without)
	r.account(line(u), a)
	r.Rest(u, "user "+name, map[string]string{
		"plain_text_passwd": "a site has hashes: mkpasswd makes one", "ssh_import_id": "an import fetches nothing: write the keys",
		"gecos": "accounts have no comment",
	}, "name", "passwd", "hashed_passwd", "lock_passwd", "uid", "shell", "ssh_authorized_keys", "ssh_redirect_user", "groups", "sudo")
}

var falseWord = regexp.MustCompile(`^(false|False|FALSE|no|No|NO|off|Off|OFF|0)$`)

// untrue reports whether a value is a false one for cloud-init, to which any text but an
// empty one is true, 'false' in quotes too.
func untrue(v *tree.Value) bool {
	return v != nil && (v.Kind == tree.Null || v.Plain && falseWord.MatchString(v.Text))
}

// anyCommand is the one rule of sudoers(5) that user_sudo stands for.
var anyCommand = regexp.MustCompile(`^\s*ALL\s*=\s*\(\s*ALL\s*(:\s*ALL\s*)?\)\s*NOPASSWD\s*:\s*ALL\s*$`)

// cloudSudo reports whether a user may run every command as everybody without a
// password. Any other rule is left out and named.
func cloudSudo(v *tree.Value, without []string) (bool, []string) {
	if v == nil || v.Kind == tree.Null || v.Kind == tree.Scalar && (v.Text == "" || strings.EqualFold(v.Text, "false")) {
		return false, without
	}
	rules := v.List
	if v.Kind == tree.Scalar {
		rules = []*tree.Value{v}
	}
	all := len(rules) > 0
	for _, rule := range rules {
		if !anyCommand.MatchString(rule.Text) {
			all = false
			without = append(without, fmt.Sprintf("the rule of sudo %q: write it to a file below /etc/sudoers.d", report.Printable(rule.Text, 80)))
		}
	}
	return all, without
}

func (r *reading) cloudFile(f *tree.Value) {
	out := file{path: text(f, "path"), content: text(f, "content"), mode: octal(f, "permissions"), appends: truth(f, "append")}
	what := "file " + out.path
	if c := f.Get("content"); c != nil && len(c.List)+len(c.Fields) > 0 {
		r.Miss(line(f), what, "its content is not a text")
		return
	}
	if f.Get("source") != nil {
		r.Miss(line(f), what, "its content is at "+text(f.Get("source"), "uri")+": an import fetches nothing")
		return
	}
	r.Rest(f, what, map[string]string{"defer": "files are there before services start"}, "path", "content",
		"permissions", "owner", "encoding", "append")
	out.owner, out.group, _ = strings.Cut(text(f, "owner"), ":")
	switch encoding := text(f, "encoding"); encoding {
	case "", "text/plain":
	case "b64", "base64":
		raw, err := base64.StdEncoding.DecodeString(out.content)
		if err != nil {
			r.Miss(line(f), what, err.Error())
			return
		}
		out.content = string(raw)
	default:
		r.Miss(line(f), what, "its content is compressed ("+encoding+")")
		return
	}
	r.file(line(f), out)
}
