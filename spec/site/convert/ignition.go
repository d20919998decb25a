// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"github.com/caisson-os/caisson/spec/site/tree"
)

// readIgnition reads Ignition's JSON and the YAML of butane, which differ in the
// spelling of keys and in how they hold content and modes.
func readIgnition(r *reading) {
	v := r.document()
	butane := v.Get("variant") != nil
	key := func(camel, snake string) string {
		if butane {
			return snake
		}
		return camel
	}
	if p := v.Get("passwd"); p != nil {
		entries(p, "users", func(u *tree.Value) {
			r.account(line(u), account{name: text(u, "name"), password: text(u, key("passwordHash", "password_hash")), uid: text(u, "uid"),
				shell: text(u, "shell"), keys: texts(u, key("sshAuthorizedKeys", "ssh_authorized_keys")), groups: texts(u, "groups")})
			r.rest(u, "user "+text(u, "name"), nil, "name", "uid", "shell", "groups", key("passwordHash", "password_hash"), key("sshAuthorizedKeys", "ssh_authorized_keys"))
		})
		r.rest(p, "passwd", map[string]string{"groups": "groups come with packages and users"}, "users")
	}
	if s := v.Get("storage"); s != nil {
		entries(s, "files", func(f *tree.Value) { r.ignitionFile(f, butane) })
		entries(s, "filesystems", func(f *tree.Value) {
			device, at := text(f, "device"), text(f, "path")
			if at == "" {
				r.miss(line(f), "filesystem "+device, "it is not mounted anywhere")
				return
			}
			p := r.take(line(f), "filesystem "+at, "mounts", at, []string{mountID(at)}, map[string]any{"device": device, "mnt_tgt": at, "type": text(f, "format")})
			p.Why = "taken as a mount: a site makes no file systems"
		})
		r.rest(s, "storage", map[string]string{"disks": "a site partitions no disks", "raid": "a site assembles no arrays", "luks": "a site encrypts no disks",
			"links": "a site has files, not links", "directories": "directories are made with their files"}, "files", "filesystems")
	}
	if s := v.Get("systemd"); s != nil {
		entries(s, "units", func(u *tree.Value) { r.unit(u, "contents") })
	}
	r.rest(v, "", map[string]string{
		key("kernelArguments", "kernel_arguments"): "write layer.kernel.args, or machine.kernel.args for some nodes",
	}, "ignition", "variant", "version", "passwd", "storage", "systemd")
}

func (r *reading) ignitionFile(f *tree.Value, butane bool) {
	out := file{path: text(f, "path"), mode: text(f, "mode")}
	if out.mode != "" {
		out.mode = octal(out.mode, !butane)
	}
	if u := f.Get("user"); u != nil {
		out.owner = text(u, "name") + text(u, "id")
	}
	if g := f.Get("group"); g != nil {
		out.group = text(g, "name") + text(g, "id")
	}
	out.appends = f.Get("append") != nil
	if c := f.Get("contents"); c != nil {
		source := text(c, "source")
		switch {
		case c.Get("inline") != nil:
			out.content = text(c, "inline")
		case c.Get("local") != nil:
			r.miss(line(f), "file "+out.path, "its content is the local file "+text(c, "local")+": write file: in the site")
			return
		case text(c, "compression") != "" || source == "":
			r.miss(line(f), "file "+out.path, "its content is compressed or not given")
			return
		default:
			content, err := dataURL(source)
			if err != nil {
				r.miss(line(f), "file "+out.path, err.Error())
				return
			}
			out.content = content
		}
	}
	r.file(line(f), out)
}
