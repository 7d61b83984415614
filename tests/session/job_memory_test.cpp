// Memory that a job moves out of the way of others, and errors on the way.
#include "regen/session/job_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session_fixture.h"

namespace regen::session {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Session> compiled(bool releasable, const std::shared_ptr<JobMemory>& memory) {
  Settings settings = test_settings("90%");
  settings.releasable = releasable;
  Surroundings surroundings;
  surroundings.memory = memory;
  auto session = open_session(captured_chain(), settings, surroundings);
  EXPECT_TRUE(session->plan().ok());
  const Status status = session->compile();
  EXPECT_TRUE(status.ok()) << status.error().message;
  return session;
}

TEST(JobMemory, MovesTheArenaOfTheCompiledStep) {
  const auto memory = std::make_shared<JobMemory>();
  EXPECT_EQ(memory->make_room(Retreat::kState).left, 0);
  auto session = compiled(true, memory);
  const Bytes fixed = session->recorded().fixed_bytes();
  const Bytes arena = session->running().executor().arena_bytes();
  RoomMade room = memory->make_room(Retreat::kNothing);
  EXPECT_TRUE(room.ok());
  EXPECT_EQ(room.left, fixed + arena);
  room = memory->make_room(Retreat::kArena);
  EXPECT_TRUE(room.ok()) << room.status.error().message;
  EXPECT_EQ(room.left, fixed);
  EXPECT_TRUE(session->running().executor().spilled());
  ASSERT_TRUE(session->running().executor().restore().ok());
  EXPECT_EQ(memory->make_room(Retreat::kNothing).left, fixed + arena);
  session->release();
  EXPECT_EQ(memory->make_room(Retreat::kArena).left, fixed);
}

TEST(JobMemory, AnErrorOfSpillingIsReturned) {
  const auto memory = std::make_shared<JobMemory>();
  auto session = compiled(false, memory);
  const RoomMade room = memory->make_room(Retreat::kArena);
  ASSERT_FALSE(room.ok());
  EXPECT_THAT(room.status.error().message, HasSubstr("releas"));
  EXPECT_EQ(room.left,
            session->recorded().fixed_bytes() + session->running().executor().arena_bytes());
}

TEST(JobMemory, TheStateLeavesAlsoWhereTheArenaCannot) {
  const auto memory = std::make_shared<JobMemory>();
  auto session = compiled(false, memory);
  const at::Tensor weight = at::ones({1000});
  auto state = execute::StateArena::pack({weight}, {}, *execute::open_device("cpu"));
  ASSERT_TRUE(state.ok()) << state.error().message;
  const std::shared_ptr<execute::StateArena> shared = std::move(*state);
  memory->set_state(shared);
  const Bytes before = memory->make_room(Retreat::kNothing).left;
  const RoomMade room = memory->make_room(Retreat::kState);
  EXPECT_FALSE(room.ok());
  EXPECT_TRUE(shared->away());
  EXPECT_EQ(room.left, std::max<Bytes>(0, before - shared->bytes()));
  ASSERT_TRUE(memory->come_back().ok());
  EXPECT_FALSE(shared->away());
  EXPECT_EQ(weight.sum().item<float>(), 1000);
}

}  // namespace
}  // namespace regen::session
