// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/tree"
)

// readIgnition reads Ignition's JSON and the YAML of butane, which differ in the
// spelling of keys and in how they hold content.
func readIgnition(r *reading) { r.ignition(r.document()) }

func (r *reading) ignition(v *tree.Value) {
	if version := text(v.Get("ignition"), "version"); v.Get("variant") == nil && !strings.HasPrefix(version, "3.") {
		r.miss(max(line(v), 1), "ignition.version "+version, "only versions 3 are read: nothing of the document is taken")
		return
	}
	key := func(camel, snake string) string {
		if v.Get("variant") != nil {
			return snake
		}
		return camel
	}
	if p := v.Get("passwd"); p != nil {
		r.entries(p, "users", func(u *tree.Value) { r.ignitionUser(u, key) })
		r.rest(p, "passwd", map[string]string{"groups": "groups come with packages and users"}, "users")
	}
	if s := v.Get("storage"); s != nil {
		r.entries(s, "files", r.ignitionFile)
		r.entries(s, "filesystems", func(f *tree.Value) { r.ignitionMount(f, key("mountOptions", "mount_options")) })
		r.rest(s, "storage", map[string]string{"disks": "a site partitions no disks", "raid": "a site assembles no arrays",
			"luks":  "a site encrypts no disks",
			"links": "a site has files, not links", "directories": "directories are made with their files",
			"trees": "its files lie beside the document: import them too"}, "files", "filesystems")
	}
	if s := v.Get("systemd"); s != nil {
		r.entries(s, "units", r.unit)
		r.rest(s, "systemd", nil, "units")
	}
	if i := v.Get("ignition"); i != nil {
		r.rest(i, "ignition", map[string]string{"config": "an import fetches nothing: import that document, too"}, "version")
	}
	if o := v.Get("openshift"); o != nil {
		r.kernelArgs(o, "kernel_arguments")
		r.rest(o, "openshift", machineConfigReasons, "kernel_arguments")
	}
	arguments := key("kernelArguments", "kernel_arguments")
	if k := v.Get(arguments); k != nil {
		r.kernelArgs(k, key("shouldExist", "should_exist"))
		r.rest(k, arguments, map[string]string{key("shouldNotExist", "should_not_exist"): "a kernel has the arguments of the site and no others"},
			key("shouldExist", "should_exist"))
	}
	r.rest(v, "", nil, "ignition", "variant", "version", "passwd", "storage", "systemd", "openshift", "metadata", arguments)
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
	v := r.document()
	r.rest(v, "", nil, "apiVersion", "kind", "metadata", "spec")
	r.labels(v)
	if s := v.Get("spec"); s != nil {
		r.kernelArgs(s, "kernelArguments")
		if c := s.Get("config"); c != nil {
			r.ignition(c)
		}
		r.rest(s, "spec", machineConfigReasons, "config", "kernelArguments")
	}
}

// labels names those of a MachineConfig: the nodes that it is for.
func (r *reading) labels(v *tree.Value) {
	if m := v.Get("metadata"); m != nil {
		r.rest(m, "metadata", map[string]string{"labels": "a site says which nodes it means by overrides"}, "name")
	}
}

// kernelArgs takes a list of arguments of the kernel.
func (r *reading) kernelArgs(v *tree.Value, key string) {
	r.entries(v, key, func(a *tree.Value) { r.kernelArg(line(a), "kernel argument "+a.Text, a.Text) })
}

func (r *reading) kernelArg(n int, line, arg string) {
	r.take(n, line, machine, "argument "+arg, []string{"kernel", "args", appended}, arg)
}

func (r *reading) ignitionUser(u *tree.Value, key func(camel, snake string) string) {
	name, hash, keys, exists := text(u, "name"), key("passwordHash", "password_hash"),
		key("sshAuthorizedKeys", "ssh_authorized_keys"), key("shouldExist", "should_exist")
	if u.Get(exists) != nil && !truth(u, exists) {
		r.miss(line(u), "user "+name, "it takes an account away")
		return
	}
	r.account(line(u), account{name: name, password: text(u, hash), uid: text(u, "uid"), shell: text(u, "shell"),
		keys: r.texts(u, keys), groups: r.texts(u, "groups")})
	r.rest(u, "user "+name, nil, "name", "uid", "shell", "groups", exists, hash, keys)
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
		r.miss(line(f), what, "it is not mounted anywhere")
	case !truth(f, "with_mount_unit"):
		r.miss(line(f), what, "nothing mounts it when the machine runs, unless a unit does: a site makes no file systems")
	default:
		id, same, value := mountID(at), at, map[string]any{"device": device, "mnt_tgt": at, "type": format}
		if swap {
			id, same, value["mnt_tgt"] = mountID("swap"+device), "swap "+device, "none"
		}
		if list := r.texts(f, options); len(list) > 0 {
			value["options"] = strings.Join(list, ",")
		}
		r.take(line(f), what, "mounts", same, []string{id}, value).Why = "taken as a mount: a site makes no file systems"
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
	r.rest(f, what, nil, "path", "mode", "user", "group", "contents", "append", "overwrite")
	c := f.Get("contents")
	if c != nil {
		r.rest(c, what+" contents", map[string]string{"verification": "the content stands in the site"},
			"inline", "local", "source", "compression")
	}
	switch {
	case truth(f, "append"), f.Get("append") != nil && len(f.Get("append").List) > 0:
		out.appends = true
	case c == nil || len(c.Fields) == 0:
		r.miss(line(f), what, "its content stays as it is on the host: conf.perm gives a file its mode and owner")
		return
	case c.Get("local") != nil:
		r.miss(line(f), what, "its content is the local file "+text(c, "local")+": write file: in the site")
		return
	case text(c, "compression") != "" || text(c, "source") == "" && c.Get("inline") == nil:
		r.miss(line(f), what, "its content is compressed or not given")
		return
	case c.Get("inline") != nil:
		out.content = text(c, "inline")
	default:
		content, err := dataURL(text(c, "source"))
		if err != nil {
			r.miss(line(f), what, err.Error())
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
	v := r.document()
	r.rest(v, "", map[string]string{"cluster": talosReasons["kubelet"]}, "version", "debug", "persist", "machine")
	m := v.Get("machine")
	if m == nil {
		return
	}
	r.each(m, "sysctls", func(key string, value *tree.Value) { r.sysctl(line(value), "sysctl "+key, key, value.Text, false) })
	r.each(m, "sysfs", func(key string, value *tree.Value) {
		if value.Kind != tree.Scalar {
			r.miss(line(value), "sysfs "+key, "it is not a text")
			return
		}
		r.sysfs(line(value), "sysfs "+key, "/sys/"+strings.ReplaceAll(key, ".", "/"), value.Text)
	})
	if k := m.Get("kernel"); k != nil {
		r.entries(k, "modules", func(e *tree.Value) {
			r.loaded(line(e), "module "+text(e, "name"), text(e, "name"))
			for _, option := range r.texts(e, "parameters") {
				r.moduleOption(line(e), "module "+text(e, "name"), text(e, "name"), option)
			}
			r.rest(e, "module", nil, "name", "parameters")
		})
		r.rest(k, "kernel", nil, "modules")
	}
	if i := m.Get("install"); i != nil {
		r.entries(i, "extraKernelArgs", func(a *tree.Value) {
			if strings.HasPrefix(a.Text, "-") {
				r.miss(line(a), "kernel argument "+a.Text, "it takes an argument away: a kernel has those of the site and no others")
				return
			}
			r.kernelArg(line(a), "kernel argument "+a.Text, a.Text)
		})
		r.rest(i, "install", map[string]string{"disk": "see layer.stateDisk", "image": "write layer"}, "extraKernelArgs")
	}
	if n := m.Get("network"); n != nil {
		r.entries(n, "nameservers", func(a *tree.Value) { r.network(line(a), "nameserver "+a.Text, "dns", a.Text) })
		r.rest(n, "network", map[string]string{"hostname": cloudReasons["hostname"], "interfaces": "write network.interfaces"}, "nameservers")
	}
	if t := m.Get("time"); t != nil {
		r.entries(t, "servers", func(a *tree.Value) { r.network(line(a), "time server "+a.Text, "ntp", a.Text) })
		r.rest(t, "time", nil, "servers")
	}
	r.rest(m, "machine", talosReasons, "sysctls", "sysfs", "kernel", "install", "network", "time")
}
