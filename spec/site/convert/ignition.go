// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/tree"
)

const kernelArguments = "write layer.kernel.args, or machine.kernel.args for some nodes"

// readIgnition reads Ignition's JSON and the YAML of butane, which differ in the
// spelling of keys and in how they hold content.
func readIgnition(r *reading) {
	v := r.document()
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
		r.rest(s, "storage", map[string]string{"disks": "a site partitions no disks", "raid": "a site assembles no arrays", "luks": "a site encrypts no disks",
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
		r.rest(o, "openshift", map[string]string{"kernel_arguments": kernelArguments})
	}
	r.rest(v, "", map[string]string{key("kernelArguments", "kernel_arguments"): kernelArguments},
		"ignition", "variant", "version", "passwd", "storage", "systemd", "openshift")
}

func (r *reading) ignitionUser(u *tree.Value, key func(camel, snake string) string) {
	name, hash, keys, exists := text(u, "name"), key("passwordHash", "password_hash"), key("sshAuthorizedKeys", "ssh_authorized_keys"), key("shouldExist", "should_exist")
	if u.Get(exists) != nil && !truth(u, exists) {
		r.miss(line(u), "user "+name, "it takes an account away")
		return
	}
	r.account(line(u), account{name: name, password: text(u, hash), uid: text(u, "uid"), shell: text(u, "shell"), keys: texts(u, keys), groups: texts(u, "groups")})
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
		if list := texts(f, options); len(list) > 0 {
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
	switch {
	case f.Get("append") != nil && len(f.Get("append").List) > 0:
		out.appends = true
	case c == nil || len(c.Fields) == 0:
		r.miss(line(f), what, "its content stays as it is on the host: conf.perm gives a file its mode and owner")
		return
	case c.Get("inline") != nil:
		out.content = text(c, "inline")
	case c.Get("local") != nil:
		r.miss(line(f), what, "its content is the local file "+text(c, "local")+": write file: in the site")
		return
	case text(c, "compression") != "" || text(c, "source") == "":
		r.miss(line(f), what, "its content is compressed or not given")
		return
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
