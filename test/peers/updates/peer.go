// SPDX-License-Identifier: Apache-2.0

package updates

// peer is one way to bring a node from the old state of a system to the new one. Its commands run
// in a root of Debian, in /peer, which has the trees old and new, and www, which is served; they
// know $URL, $RSYNC, $OLD and $NEW, the digests of the layers.
type peer struct {
	name    string
	version string
	publish string // what the publisher does, once
	node    string // what the node has of the old state, once; not measured
	before  string // makes the node's state; not measured
	fetch   string // what the node does
	check   string // fails where the node has not the new state
}

// sameTree compares the content of a tree with the new one.
const sameTree = `sum() { (cd $1 && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
sum new >want && sum node >got && cmp want got`

var peers = []peer{
	{name: "caisson", version: "./caisson version",
		node:   "[ -d store0 ] || ./peers -fetch store0 ${URL#http://} $OLD",
		before: "rm -rf store && cp -a store0 store",
		fetch:  "./peers -fetch store ${URL#http://} $NEW $OLD",
		check:  "./peers -fetch store 127.0.0.1:1 $NEW"}, // all is there: nobody is asked
	{name: "layers-whole", version: "./caisson version",
		node:   "[ -d store0 ] || ./peers -fetch store0 ${URL#http://} $OLD",
		before: "rm -rf store && cp -a store0 store",
		fetch:  "./peers -fetch store ${URL#http://} $NEW",
		check:  "./peers -fetch store 127.0.0.1:1 $NEW"},
	{name: "casync-tree", version: "casync --version",
		publish: "casync make --with=unix --store=www/tree.castr www/new.caidx new",
		before:  "rm -rf node && cp -a old node.old",
		fetch:   "casync extract --with=unix --seed=node.old --store=$URL/tree.castr $URL/new.caidx node",
		check:   sameTree},
	{name: "casync-image", version: "casync --version",
		publish: "casync make --store=www/image.castr www/new.caibx new.ext4",
		before:  "rm -f node.ext4",
		fetch:   "casync extract --seed=old.ext4 --store=$URL/image.castr $URL/new.caibx node.ext4",
		check:   "cmp new.ext4 node.ext4"},
	{name: "zstd", version: "zstd --version",
		publish: "zstd -q -f -12 -T0 --long=31 --patch-from=old.tar new.tar -o www/patch.zst",
		before:  "rm -f node.tar patch.zst",
		fetch:   "curl -s -o patch.zst $URL/patch.zst && zstd -q -d --long=31 --memory=2048MB --patch-from=old.tar patch.zst -o node.tar",
		check:   "cmp new.tar node.tar"},
	{name: "rsync", version: "rsync --version | head -1",
		before: "rm -rf node && cp -a old node",
		fetch:  "rsync -aHcz --numeric-ids --delete $RSYNC/new/ node/",
		check:  sameTree},
	{name: "ostree", version: "ostree --version | sed -n 2p",
		publish: "ostree --repo=www/ostree init --mode=archive && O=$(ostree --repo=www/ostree commit --branch=node --tree=dir=old " +
			"--timestamp=@0) && " +
			"ostree --repo=node0 init --mode=bare && ostree --repo=node0 remote add --no-gpg-verify origin $URL/ostree && ostree " +
			"--repo=node0 pull origin node && " +
			"N=$(ostree --repo=www/ostree commit --branch=node --tree=dir=new --timestamp=@1) && " +
			"ostree --repo=www/ostree static-delta generate --min-fallback-size=0 --from=$O --to=$N && ostree --repo=www/ostree summary --update",
		before: "rm -rf node node.repo && cp -a node0 node.repo && ostree --repo=node.repo config set remote.origin.url $URL/ostree",
		fetch:  "ostree --repo=node.repo pull origin node && ostree --repo=node.repo checkout --require-hardlinks origin:node node",
		check:  sameTree},
}

// Peers returns the names of all.
func Peers() (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}
