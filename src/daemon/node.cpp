// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/node.hpp"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ecfs::daemon {
namespace {

std::unique_ptr<char[]> copy_name(const std::string& name) {
  auto p = std::make_unique<char[]>(name.size() + 1);
  std::memcpy(p.get(), name.c_str(), name.size() + 1);
  return p;
}

}  // namespace

NodePtr NodeTable::make_root(NodeKey key) {
  root_ = std::make_shared<Node>(key, S_IFDIR);
  root_->lookups_ = 1;
  const std::lock_guard lock(mutex_);
  nodes_.emplace(key, root_);
  return root_;
}

NodePtr NodeTable::look_up(NodeKey key, mode_t mode, std::optional<Link> link) {
  std::shared_ptr<UniqueFd> unpinned;
  Gone gone;
  NodePtr found;
  {
    const std::lock_guard lock(mutex_);
    NodePtr& slot = nodes_[key];
    // Another type under the same number: the lower directory was changed beneath us, and the old object is gone.
    if (slot && slot->type != (mode & S_IFMT)) displaced_.push_back(std::move(slot));
    if (!slot) slot = std::make_shared<Node>(key, mode);
    found = slot;
    peak_ = std::max(peak_, nodes_.size());
    ++found->lookups_;
    if (link) {
      add_locked(*found, *link, gone);
      if (found->pin_) {  // linkat gave it a name again
        unpinned = found->pin_;
        set_pin_locked(*found, nullptr);
      }
    }
  }
  close(std::move(gone));
  return found;
}

NodePtr NodeTable::find(NodeKey key) const {
  const std::lock_guard lock(mutex_);
  const auto it = nodes_.find(key);
  return it == nodes_.end() ? nullptr : it->second;
}

void NodeTable::forget(const NodePtr& node, std::uint64_t count) {
  if (node == root_) return;
  Gone gone;
  bool trim = false;
  {
    const std::lock_guard lock(mutex_);
    node->lookups_ -= std::min(node->lookups_, count);
    if (node->lookups_ > 0 || node->children_ > 0) return;
    erase_locked(node, gone);
    // Most of a large tree was forgotten: its memory goes back to the system, which the allocator would not do by itself.
    constexpr std::size_t kWorthIt = 16384;
    if (peak_ > kWorthIt && nodes_.size() < peak_ / 2) {
      peak_ = nodes_.size();
      trim = true;
    }
  }
  close(std::move(gone));
  if (trim) ::malloc_trim(0);
}

void NodeTable::leave_locked(NodePtr parent, Gone& gone) {
  if (--parent->children_ == 0 && parent->lookups_ == 0) erase_locked(parent, gone);
}

void NodeTable::erase_locked(const NodePtr& node, Gone& gone) {
  const auto it = nodes_.find(node->key);
  if (it != nodes_.end() && it->second == node) nodes_.erase(it);
  std::erase(displaced_, node);
  if (!removed_.empty()) removed_.erase(node.get());
  if (node->pin_) set_pin_locked(*node, nullptr);
  const NodePtr parent = std::exchange(node->parent_, std::move(gone));
  gone = node;
  if (std::exchange(node->name_, nullptr)) leave_locked(parent, gone);
  if (const auto more = std::move(node->more_))
    for (const auto& link : *more) leave_locked(link.parent, gone);
}

void NodeTable::close(Gone gone) {
  while (gone) {
    if (gone->type == S_IFDIR)
      dirs.drop(*gone);
    else
      files.drop(*gone);
    gone = std::exchange(gone->parent_, nullptr);
  }
}

std::optional<Link> NodeTable::where(const Node& node) const {
  const std::lock_guard lock(mutex_);
  if (!node.name_) return std::nullopt;
  return Link{node.parent_, node.name_.get()};
}

std::vector<Link> NodeTable::names(const Node& node) const {
  const std::lock_guard lock(mutex_);
  std::vector<Link> out;
  if (node.name_) out.push_back({node.parent_, node.name_.get()});
  if (node.more_) out.insert(out.end(), node.more_->begin(), node.more_->end());
  return out;
}

std::shared_ptr<UniqueFd> NodeTable::pin(const Node& node) const {
  const std::lock_guard lock(mutex_);
  return node.pin_;
}

void NodeTable::set_pin_locked(Node& node, std::shared_ptr<UniqueFd> fd) {
  if (!node.pin_ && fd) pinned_.fetch_add(1, std::memory_order_relaxed);
  if (node.pin_ && !fd) {
    pinned_.fetch_sub(1, std::memory_order_relaxed);
    ++unpins_;
    if (waiting_ > 0) unpinned_.notify_all();
  }
  node.pin_ = std::move(fd);
}

void NodeTable::set_pin(Node& node, std::shared_ptr<UniqueFd> fd) {
  const std::lock_guard lock(mutex_);
  set_pin_locked(node, std::move(fd));
}

bool NodeTable::room_for_pin(std::size_t max) {
  // Forgets come to another worker; two of them stay free for those (session.cpp has four or more).
  constexpr unsigned kWaiters = 2;
  constexpr std::chrono::milliseconds kMoment(200);
  std::unique_lock lock(mutex_);
  const auto room = [&] { return pinned() < max; };
  if (room()) return true;
  // What stays open does not become less by waiting again.
  if (unpins_ == vain_) return false;
  // Nor is a worker refused only because others wait: each may take one of the descriptors that are kept for requests in flight.
  if (waiting_ >= kWaiters) return pinned() < max + 2 * kWaiters;
  ++waiting_;
  const bool came = unpinned_.wait_for(lock, kMoment, room);
  --waiting_;
  if (!came) vain_ = unpins_;
  return came;
}

void NodeTable::set_removed(const Node& node, const struct stat& last) {
  const std::lock_guard lock(mutex_);
  removed_[&node] = last;
}

std::optional<struct stat> NodeTable::removed(const Node& node) const {
  const std::lock_guard lock(mutex_);
  const auto it = removed_.find(&node);
  if (it == removed_.end()) return std::nullopt;
  return it->second;
}

bool NodeTable::only_name(const Node& node, const Link& link) const {
  const std::lock_guard lock(mutex_);
  if (node.more_ && !node.more_->empty()) return false;
  return !node.name_ || (node.parent_ == link.parent && link.name == node.name_.get());
}

void NodeTable::add_locked(Node& node, const Link& link, Gone& gone) {
  if (node.name_ && node.parent_ == link.parent && link.name == node.name_.get()) return;
  // A directory has one name: the one of the last lookup is the true one.
  if (!node.name_ || node.type == S_IFDIR) {
    ++link.parent->children_;
    const NodePtr before = std::exchange(node.parent_, link.parent);
    if (std::exchange(node.name_, copy_name(link.name))) leave_locked(before, gone);
    return;
  }
  if (!node.more_) node.more_ = std::make_unique<std::set<Link>>();
  if (node.more_->insert(link).second) ++link.parent->children_;
}

void NodeTable::remove_locked(Node& node, const Link& link, Gone& gone) {
  if (node.name_ && node.parent_ == link.parent && link.name == node.name_.get()) {
    node.parent_ = nullptr;
    node.name_ = nullptr;
    if (node.more_ && !node.more_->empty()) {
      const auto next = node.more_->begin();
      node.parent_ = next->parent;
      node.name_ = copy_name(next->name);
      node.more_->erase(next);
    }
    leave_locked(link.parent, gone);
  } else if (node.more_ && node.more_->erase(link) != 0) {
    leave_locked(link.parent, gone);
  }
  if (node.more_ && node.more_->empty()) node.more_ = nullptr;
}

void NodeTable::add_name(Node& node, const Link& link) {
  Gone gone;
  {
    const std::lock_guard lock(mutex_);
    add_locked(node, link, gone);
  }
  close(std::move(gone));
}

void NodeTable::remove_name(Node& node, const Link& link) {
  Gone gone;
  {
    const std::lock_guard lock(mutex_);
    remove_locked(node, link, gone);
  }
  close(std::move(gone));
}

void NodeTable::move_name(Node& node, const Link& from, const Link& to) {
  Gone gone;
  {
    const std::lock_guard lock(mutex_);
    remove_locked(node, from, gone);
    add_locked(node, to, gone);
  }
  close(std::move(gone));
}

std::size_t NodeTable::size() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

}  // namespace ecfs::daemon
