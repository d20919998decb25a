// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/tree"
)

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
		r.sysfs(line(value), "sysfs "+key, "/sys/"+strings.ReplaceAll(key, ".", "/"), value.Text)
	})
	if k := m.Get("kernel"); k != nil {
		r.entries(k, "modules", func(e *tree.Value) {
			r.loaded(line(e), "module "+text(e, "name"), text(e, "name"))
			for _, option := range texts(e, "parameters") {
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
