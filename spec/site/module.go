// SPDX-License-Identifier: Apache-2.0

package site

import "github.com/caisson-os/caisson/spec"

// module is one part of the configuration that has overrides of its own: for a
// node, exactly one target of it applies.
type module struct {
	name    string
	stanza  string // its key below overrides
	image   bool   // acts when a layer is baked; else on the node
	normal  func(*checker, *value) *value
	compile func(*checker, *value, *fragment)
}

// modules is every module. The order is that of reports; nothing else hangs on it.
var modules = []module{
	{"apparmor", "divingbell_apparmor", true, nil, (*checker).apparmor},
	{"apt", "divingbell_apt", true, nil, (*checker).apt},
	{"ethtool", "divingbell_ethtool", false, (*checker).normalEthtool, (*checker).ethtool},
	{"exec", "divingbell_exec", false, (*checker).normalExec, (*checker).exec},
	{"limits", "divingbell_limits", false, nil, (*checker).limits},
	{"mounts", "divingbell_mounts", false, nil, (*checker).mounts},
	{"perm", "divingbell_perm", true, (*checker).normalPerm, (*checker).perm}, // of baked paths; the rest is on the node
	{"sysctl", "divingbell_sysctl", false, (*checker).normalSysctl, (*checker).sysctl},
	{"uamlite", "divingbell_uamlite", true, nil, (*checker).uamlite},
	{"machine", "", false, nil, (*checker).machine},
}

// machineModule is the one whose overrides stand beside its values instead of in conf.
const machineModule = "machine"

// fragment is what one target of one module compiles to; a module fills its own part.
type fragment struct {
	items    spec.Items
	packages spec.Packages
	accounts spec.Accounts
	apparmor spec.AppArmor
	baked    *spec.Perm
	machine  machine
}

func moduleNames() []string {
	var out []string
	for _, m := range modules {
		if m.name != machineModule {
			out = append(out, m.name)
		}
	}
	return out
}

// confDoc is conf. Its modules are decoded one target at a time, so it serves
// for the schema and for finding unknown keys.
type confDoc struct {
	modulesDoc
	Overrides Raw[overridesDoc] `site:"overrides" doc:"what differs by host or label, by module"`
}

// modulesDoc is what conf and every override's conf may hold.
type modulesDoc struct {
	AppArmor     Raw[appArmorDoc]    `site:"apparmor" doc:"AppArmor profiles, baked into the layer"`
	Apt          Raw[aptDoc]         `site:"apt" doc:"packages, baked into the layer"`
	Ethtool      Raw[Map[Map[Flag]]] `site:"ethtool" doc:"offload features by interface"`
	Exec         Raw[Map[execDoc]]   `site:"exec" doc:"scripts, run in the order of their names"`
	Limits       Raw[Map[limitDoc]]  `site:"limits" doc:"lines of limits.conf(5)"`
	Mounts       Raw[Map[mountDoc]]  `site:"mounts" doc:"file systems"`
	Perm         Raw[permShape]      `site:"perm" doc:"owners and modes of paths"`
	Perms        Raw[[]permPathDoc]  `site:"perms" doc:"older shape of perm"`
	Sysctl       Raw[Map[Text]]      `site:"sysctl" doc:"kernel parameters, in dot or slash spelling"`
	Uamlite      Raw[uamliteDoc]     `site:"uamlite" doc:"users, baked into the layer"`
	ChrootPath   Text                `site:"chroot_mnt_path" doc:"accepted, without effect"`
	LogColors    Flag                `site:"log_colors" doc:"accepted, without effect"`
	ExtraVerbose Flag                `site:"extra_verbose" doc:"accepted, without effect"`
}

// Raw is a value that is decoded later, as a T.
type Raw[T any] struct{ v *value }

func (r *Raw[T]) decode(_ *checker, v *value) { r.v = v }
