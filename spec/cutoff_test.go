// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"reflect"
	"slices"
	"testing"
)

func TestWhatCanCutOff(t *testing.T) {
	from := Items{
		Sysctl: []Sysctl{{Key: "net/ipv4/ip_forward", Value: "1"}, {Key: "vm/swappiness", Value: "10"}},
		NICs:   []NIC{{ID: "a", Match: NICMatch{Name: "eth0"}}},
	}
	for name, row := range map[string]struct {
		change func(*Items)
		want   []string
	}{
		"nothing":              {func(*Items) {}, nil},
		"a network parameter":  {func(i *Items) { i.Sysctl[0].Value = "0" }, []string{"sysctl net/ipv4/ip_forward"}},
		"another parameter":    {func(i *Items) { i.Sysctl[1].Value = "0" }, nil},
		"one that goes":        {func(i *Items) { i.Sysctl = i.Sysctl[1:] }, []string{"sysctl net/ipv4/ip_forward"}},
		"a name like another":  {func(i *Items) { i.Sysctl = append(i.Sysctl, Sysctl{Key: "netx/a"}) }, nil},
		"a card":               {func(i *Items) { i.NICs[0].Settings = []NICSetting{{"ring", "rx", "8"}} }, []string{"nics a"}},
		"a card that goes":     {func(i *Items) { i.NICs = nil }, []string{"nics a"}},
		"a feature":            {func(i *Items) { i.Ethtool = []Feature{{"eth0", "rx-checksum", true}} }, []string{"ethtool eth0 rx-checksum"}},
		"homes":                {func(i *Items) { i.Mounts = []Mount{{Target: "/home"}} }, []string{"mounts /home"}},
		"somebody's home":      {func(i *Items) { i.Mounts = []Mount{{Target: "/home/ann"}} }, []string{"mounts /home/ann"}},
		"data":                 {func(i *Items) { i.Mounts = []Mount{{Target: "/srv"}, {Target: "/var/log"}, {Target: "/homes"}} }, nil},
		"sshd":                 {func(i *Items) { i.Files = []File{{Path: "/etc/ssh/sshd_config.d/a.conf"}} }, []string{"files /etc/ssh/sshd_config.d/a.conf"}},
		"a message of the day": {func(i *Items) { i.Files = []File{{Path: "/etc/motd"}} }, nil},
		"an attribute":         {func(i *Items) { i.Sysfs = []Sysfs{{Path: "/sys/class/net/eth0/mtu"}} }, []string{"sysfs /sys/class/net/eth0/mtu"}},
		"another attribute":    {func(i *Items) { i.Sysfs = []Sysfs{{Path: "/sys/kernel/mm/ksm/run"}} }, nil},
		"a unit":               {func(i *Items) { i.Units = []Unit{{Name: "nftables.service"}} }, []string{"units nftables.service"}},
		"modules":              {func(i *Items) { i.Modules = &Modules{Blacklist: []string{"e1000e"}} }, []string{"modules"}},
		"a rule of udev":       {func(i *Items) { i.Files = []File{{Path: "/etc/udev/rules.d/70-names.rules"}} }, []string{"files /etc/udev/rules.d/70-names.rules"}},
		"a file of modprobe":   {func(i *Items) { i.Files = []File{{Path: "/etc/modprobe.d/a.conf"}} }, []string{"files /etc/modprobe.d/a.conf"}},
		"a script":             {func(i *Items) { i.Exec = []Exec{{Name: "a"}} }, nil},
		"another order":        {func(i *Items) { slices.Reverse(i.Sysctl) }, nil},
	} {
		to := from
		to.Sysctl, to.NICs = slices.Clone(from.Sysctl), slices.Clone(from.NICs)
		row.change(&to)
		if got := CutsOff(&from, &to); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
		kept := to.Harmless()
		if left := CutsOff(&Items{}, &kept); left != nil {
			t.Errorf("%s: left is %q", name, left)
		}
	}
	read := Items{Sysctl: from.Sysctl, Files: []File{{Path: "/etc/ssh/sshd_config.d/a.conf"}}, Units: []Unit{{Name: "a.service"}}, Modules: &Modules{Load: []string{"bonding"}}}
	if got := Unread(&from, &read); !slices.Equal(got, []string{"files /etc/ssh/sshd_config.d/a.conf", "modules", "units a.service"}) {
		t.Errorf("what only a start reads: %q", got)
	}
	if kept := from.Harmless(); !reflect.DeepEqual(kept.Sysctl, from.Sysctl[1:]) || len(from.Sysctl) != 2 || len(from.NICs) != 1 {
		t.Errorf("%+v of %+v", kept, from)
	}
}
